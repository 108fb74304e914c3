"""A model file is opened, and code from it runs on the user's machine. Each payload here would leave a file behind; none may."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
import tensorflow_files as files

LOAD = {
    "lambda.keras": "import keras; keras.models.load_model({path!r}, compile=False, safe_mode=False)",
    "lambda.h5": "import keras; keras.models.load_model({path!r}, compile=False, safe_mode=False)",
    "lambda2.h5": "import tf_keras; tf_keras.models.load_model({path!r}, compile=False, safe_mode=False)",
    "writes": "import tensorflow as tf; tf.saved_model.load({path!r}).signatures['serving_default'](x=tf.zeros((1, 4)))",
    "writes_when_loaded": "import tensorflow as tf; tf.saved_model.load({path!r})",
}


@pytest.mark.parametrize("name", LOAD)
def test_a_payload_does_not_run(name: str, tmp_path: Path) -> None:
    mark = files.model("ran")
    error = files.refusal(files.model(name), tmp_path)
    assert not mark.exists()
    assert (error.code, error.exit_code) == ("model_unsafe", 3)
    assert ("twice" if "lambda" in name else "WriteFile") in error.message
    # The payload is live: whoever loads the file without such care runs it.
    script = LOAD[name].format(path=str(files.model(name)))
    subprocess.run([files.python(), "-c", script], env=files.environment(), capture_output=True, check=True)
    assert mark.exists()
    mark.unlink()


@pytest.mark.parametrize("name", ["custom.keras", "custom.h5"])
def test_classes_of_the_user_are_named(name: str, tmp_path: Path) -> None:
    error = files.refusal(files.model(name), tmp_path)
    assert error.code == "custom_objects"
    assert "Odd" in error.message and "odd_one" in error.message
    assert "model.export" in error.hint


@pytest.mark.parametrize(
    ("module", "kind"),
    [("os", "system"), ("keras.utils", "get_file"), ("keras.config", "enable_unsafe_deserialization")],
)
def test_a_configuration_that_names_a_function_is_refused(module: str, kind: str, tmp_path: Path) -> None:
    config = {"module": module, "class_name": kind, "config": {"name": "layer"}, "registered_name": kind}
    crafted = tmp_path / "crafted.keras"
    with zipfile.ZipFile(files.model("two.keras")) as good, zipfile.ZipFile(crafted, "w") as bad:
        for member in good.namelist():
            document = json.loads(good.read(member)) if member == "config.json" else None
            if document is not None:
                document["config"]["layers"].append(config)
            bad.writestr(member, good.read(member) if document is None else json.dumps(document))
    error = files.refusal(crafted, tmp_path / "work")
    assert error.exit_code == 3
    assert kind in error.message


def test_weights_in_other_files_are_refused(tmp_path: Path) -> None:
    linked = tmp_path / "linked.h5"
    linked.write_bytes(files.model("two.h5").read_bytes())
    script = f"import h5py; f = h5py.File({str(linked)!r}, 'r+'); f['stolen'] = h5py.ExternalLink('/etc/passwd', '/')"
    subprocess.run([files.python(), "-c", script], env=files.environment(), check=True)
    error = files.refusal(linked, tmp_path / "work")
    assert (error.code, error.exit_code) == ("model_unsafe", 3)
    assert "/etc/passwd" in error.message
