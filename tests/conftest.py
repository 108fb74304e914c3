"""What the tests of several rooms share: front ends, and bundles that are converted once in a session."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parent
for _place in (
    _TESTS,
    _TESTS / "intake",
    _TESTS / "lab",
    _TESTS / "push",
):  # bundles, networks, tiny_models, the lab, boards...
    sys.path.insert(0, str(_place))

from bundles import ONNX_FRONTENDS, SAMPLES, Bundle, convert, require_frontend  # noqa: E402

if sys.version_info >= (3, 11):  # noqa: UP036 - the board's code is tested under 3.8 as well, and needs none of the workstation's
    from lab_fixtures import desk, frail_link, ground, lab_board, make_board, make_proxy, proxy, ssh_link  # noqa: F401


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of the sample networks."""
    return SAMPLES


@pytest.fixture(scope="session", params=ONNX_FRONTENDS)
def frontend(request: pytest.FixtureRequest) -> str:
    """Each front end that reads ONNX; skips where it is not installed."""
    require_frontend(request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def any_frontend() -> str:
    """The best installed front end that reads ONNX."""
    from edgekit.intake import frontends

    found = [front.name for front in frontends.installed() if front.name in ONNX_FRONTENDS]
    if not found:
        pytest.skip("no front end is installed: edgekit frontend add onnx2tf")
    return found[0]


@pytest.fixture(scope="session")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bundle]:
    """``fashion(frontend)``: the ReLU6 sample network as a bundle, calibrated on 200 pictures, judged on 300 labelled test pictures."""
    from edgekit.calibrate.sources import DataOptions
    from edgekit.values import Preprocessing

    options = DataOptions(
        preprocessing=Preprocessing(color="gray", mean=(127.5,), std=(127.5,)),
        raw_pixel_arrays=True,
        layout="nchw",
        class_names=tuple((SAMPLES / "class_names.txt").read_text().splitlines()),
    )

    @functools.cache
    def made(name: str) -> Bundle:
        require_frontend(name)
        return convert(
            SAMPLES / "fashion_relu6.onnx",
            SAMPLES / "calibration",
            tmp_path_factory.mktemp("fashion") / f"{name}.bundle",
            eval_data=str(SAMPLES / "test.npz"),
            eval_labels="label",
            evaluation_limit=300,
            options=options,
            frontend=name,
            threads=1,
        )

    return made
