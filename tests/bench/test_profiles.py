"""Device profiles: what they say, how a board is recognised, and what a mistyped one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bench.profiles import load_profile, profile_for, profile_names, profile_of, read_profile
from edgekit.errors import RecipeError
from edgekit.link.base import Link
from edgekit.link.local import LocalLink


def test_all_profiles_are_valid() -> None:
    assert {"generic-linux", "raspberry-pi-4", "raspberry-pi-5", "jetson-orin-nano"} <= set(profile_names())
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        known = [
            value
            for value in (profile.pacing_target_c, profile.throttle_c, profile.limit_c, profile.critical_c)
            if value
        ]
        assert known == sorted(known), name


@pytest.mark.parametrize(
    ("model", "compatible", "name"),
    [
        ("Raspberry Pi 4 Model B Rev 1.4", None, "raspberry-pi-4"),
        ("Raspberry Pi Compute Module 4 Rev 1.1", None, "raspberry-pi-4"),
        ("Raspberry Pi 5 Model B Rev 1.1", "raspberrypi,5-model-b\0brcm,bcm2712\0", "raspberry-pi-5"),
        ("some carrier", "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0", "jetson-orin-nano"),
        ("Raspberry Pi 3 Model B Plus Rev 1.3", None, "raspberry-pi-3b-plus"),
        ("Raspberry Pi Zero 2 W Rev 1.0", None, "raspberry-pi-zero-2-w"),
        ("NVIDIA Jetson Nano Developer Kit", "nvidia,p3449-0000-b00+p3448-0000-b00\0nvidia,tegra210\0", "jetson-nano"),
        ("some carrier", "nvidia,p3509-0000+p3668-0001\0nvidia,tegra194\0", "jetson-xavier-nx"),
        ("Raspberry Pi 3 Model B Rev 1.2", None, "generic-linux"),
        (None, None, "generic-linux"),
    ],
)
def test_boards_are_recognised(model: str | None, compatible: str | None, name: str) -> None:
    assert profile_for(model=model, compatible=compatible).name == name


def test_the_board_behind_a_link() -> None:
    class Pi(LocalLink):
        def read_bytes(self, remote: str, *, offset: int = 0) -> bytes:
            if remote == "/sys/firmware/devicetree/base/model":
                return b"Raspberry Pi 5 Model B Rev 1.0\0"
            return super().read_bytes("/nothing" + remote)

    link: Link = Pi()
    assert profile_of(link).name == "raspberry-pi-5"


VALID = '[board]\ntitle = "A board"\n'


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("[boards]\n", "'boards' is no table", 'did you mean "board"?'),
        (VALID + "[throttling]\nform_c = 80\n", "'form_c' is no key of [throttling]", 'did you mean "from_c"?'),
        (VALID + "[throttling]\nxyz = 80\n", "'xyz' is no key of [throttling]", "one of by, from_c"),
        (VALID + "[throttling]\nfrom_c = 8000\n", "between 0 and 150 degrees, not 8000", ""),
        (VALID + "[throttling]\nfrom_c = true\n", "not True", ""),
        (VALID + '[throttling]\nby = "magic"\n', '"kernel" or "firmware"', ""),
        (VALID + "[clocks]\nmax_khz = 1500000\n", "must be a list of int", ""),
        (VALID + "[sensors]\nzone_types = [1]\n", "must be a list of str", ""),
        (VALID + '[recognise]\nmodel = "("\n', "no regular expression", ""),
        ("board = 3\n", "board must be a table", ""),
        ("[recognise]\nmodel = 'x'\n", "has no board.title", ""),
        ("[board\n", "cannot be read", ""),
    ],
)
def test_wrong_profiles_are_told_apart(tmp_path: Path, text: str, said: str, hint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_profile(path)
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert "mine.toml" in caught.value.message


def test_an_unknown_profile() -> None:
    with pytest.raises(RecipeError) as caught:
        load_profile("rasberry-pi-5")
    assert caught.value.hint == 'did you mean "raspberry-pi-5"?'


def test_how_fast_boards_heat() -> None:
    pi = load_profile("raspberry-pi-4")
    assert [setup.name for setup in pi.setups] == ["bare", "heatsink", "fan"]
    for name in profile_names():
        for setup in load_profile(name).setups:
            assert 0 < setup.idle_w < setup.load_w, name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[thermal.bare]\ndie_j_k = 0\n", "above 0"),
        ("[thermal.bare]\ndie_jk = 1\n", "'die_jk' is no key"),
        ("[thermal.bare]\ndie_j_k = 4.0\n", "lacks die_to_body_k_w"),
        ("[thermal]\nbare = 1\n", "must hold tables"),
        ("thermal = 3\n", "must hold tables"),
    ],
)
def test_heat_constants_that_make_no_sense(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "board.toml"
    path.write_text(
        (text + "[board]\ntitle = 'x'\n") if text.startswith("thermal") else "[board]\ntitle = 'x'\n" + text
    )
    with pytest.raises(RecipeError) as caught:
        read_profile(path)
    assert said in caught.value.message
