"""Recipes: complete on their own, every key known, every value possible."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bundles import ROOT

from edgekit.errors import RecipeError
from edgekit.quantize import recipe
from edgekit.values import Preprocessing

TEXT = (ROOT / "recipes" / "full-int8.toml").read_text()


def changed(folder: Path, before: str, after: str) -> str:
    """full-int8 with one text replaced, as a file."""
    assert len(re.findall(before, TEXT)) == 1, before
    path = folder / "mine.toml"
    path.write_text(re.sub(before, lambda _: after, TEXT))
    return str(path)


def refusal(name: str) -> str:
    with pytest.raises(RecipeError) as caught:
        recipe.load(name)
    assert (caught.value.code, caught.value.exit_code) == ("recipe_invalid", 2)
    assert caught.value.hint
    return f"{caught.value.message} -> {caught.value.hint}"


def test_full_int8_says_what_the_classes_say() -> None:
    """The file in the checkout is readable on its own, and its numbers are those of the code."""
    loaded = recipe.load("full-int8")
    assert loaded.name == "full-int8" and loaded.description and loaded.preprocessing is None
    assert (loaded.quantize, loaded.calibration, loaded.corrections, loaded.gates) == (
        recipe.Quantization(),
        recipe.Calibration(),
        recipe.Corrections(),
        recipe.Gates(),
    )
    assert loaded == recipe.load(str(ROOT / "recipes" / "full-int8.toml"))
    assert "full-int8" in recipe.recipe_names()


def test_names_that_do_not_exist(tmp_path: Path) -> None:
    said = refusal("full-int")
    assert "there is no recipe 'full-int' -> did you mean \"full-int8\"?" in said and "known recipes:" in said
    assert "there is no recipe" in refusal(str(tmp_path / "missing.toml"))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("sqnr_min_db =", "sqnr_mn_db =", 'unknown key gates.sqnr_mn_db -> did you mean "sqnr_min_db"?'),
        (r"\[gates\]", "[gate]", 'unknown key gate -> did you mean "gates"?'),
        ("engine =", "zzz =", "unknown key quantize.zzz -> known keys: quantize.engine, quantize.weights"),
        ("sqnr_min_db = 10.0 +#.*", "", "gates.sqnr_min_db is missing: a recipe is complete on its own"),
        (r"(?s)\[calibration\].*?\n\n", "", "calibration is missing: a recipe is complete on its own"),
        ('(?m)^name = "full-int8"', "", "name is missing"),
        ('(?m)^name = "full-int8"', "name = 8", "name = 8 should be a text"),
        ("contract = true", 'contract = "yes"', "gates.contract = 'yes' should be a bool, like True"),
        (
            "constant_slices_max = 0",
            "constant_slices_max = 0.5",
            "gates.constant_slices_max = 0.5 should be a int, like 0",
        ),
        ("sqnr_min_db = 10.0", "sqnr_min_db = true", "gates.sqnr_min_db = True should be a float, like 10.0"),
        ("sqnr_min_db = 10.0", "sqnr_min_db = nan", "gates.sqnr_min_db = nan is not possible"),
        ("agreement_min = 0.8", "agreement_min = 80", "gates.agreement_min = 80.0 is not possible -> possible: 0 to 1"),
        ("constant_slices_max = 0", "constant_slices_max = -1", "gates.constant_slices_max = -1 is not possible"),
        (
            'activations = "int8"',
            'activations = "int4"',
            "quantize.activations = 'int4' is not possible -> possible: int8, int16, dynamic, float32",
        ),
        (
            'ranges = "search"',
            'ranges = "median"',
            "calibration.ranges = 'median' is not possible -> possible: search, min-max, head-room, percentile",
        ),
        ('(?m)^name = "full-int8"', 'name = "full-int8"\npreprocessing = 1', "preprocessing is not a table"),
        (r"\[gates\]", "[gates", "mine.toml is not TOML:"),
    ],
)
def test_what_a_recipe_may_not_say(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert said in refusal(changed(tmp_path, before, after))


def test_whole_numbers_do_for_decibels(tmp_path: Path) -> None:
    assert recipe.load(changed(tmp_path, "sqnr_min_db = 10.0", "sqnr_min_db = 12")).gates.sqnr_min_db == 12.0


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe\x00")
    assert "mine.toml is not TOML" in refusal(str(tmp_path / "mine.toml"))


def with_preprocessing(folder: Path, table: str) -> str:
    (folder / "mine.toml").write_text(f"{TEXT}\n[preprocessing]\n{table}\n")
    return str(folder / "mine.toml")


def test_preprocessing_in_a_recipe(tmp_path: Path) -> None:
    table = 'resize = 256\ncrop = [224, 192]\ncolor = "bgr"\nmean = [1, 2, 3.5]\nstd = 128'
    assert recipe.load(with_preprocessing(tmp_path, table)).preprocessing == Preprocessing(
        resize=(256, 256), crop=(224, 192), color="bgr", mean=(1.0, 2.0, 3.5), std=(128.0,)
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("mean = 0", "preprocessing.std is missing"),
        ("mean = 0\nstd = 0", "preprocessing.std = 0 must be above zero"),
        ("mean = [1, 2]\nstd = 1", "preprocessing.mean = [1, 2] should be one number, or three"),
        ('mean = "0"\nstd = 1', "preprocessing.mean = '0' should be one number, or three"),
        ("mean = 0\nstd = 1\nresize = true", "preprocessing.resize = True should be a size in pixels"),
        ("mean = 0\nstd = 1\ncrop = [0, 5]", "preprocessing.crop = [0, 5] should be a size in pixels"),
        ('mean = 0\nstd = 1\nfit = "cover"', "preprocessing.fit = 'cover' is not possible -> possible: short-side"),
        ("mean = 0\nstd = 1\nsize = 5", 'unknown key preprocessing.size -> did you mean "resize"?'),
    ],
)
def test_preprocessing_that_is_impossible(tmp_path: Path, table: str, said: str) -> None:
    assert said in refusal(with_preprocessing(tmp_path, table))


def test_the_command_line_outranks_the_recipe(tmp_path: Path) -> None:
    from edgekit.flow import preprocessing_of

    mine = recipe.load(with_preprocessing(tmp_path, "mean = 0\nstd = 255"))
    given: Any = Preprocessing(mean=(1.0,))
    assert preprocessing_of(mine, None) == mine.preprocessing
    assert preprocessing_of(mine, given) is given
