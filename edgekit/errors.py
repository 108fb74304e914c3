"""Everything that edgekit can complain about, and the exit code that each complaint ends in.

::

    EdgekitError                        exit 70  a fault of edgekit itself
    ├── UsageError                      exit 2   wrong call, recipe or output place
    │   ├── RecipeError
    │   ├── DataError                            calibration or evaluation data that do not fit
    │   ├── ModelFileError                       not a model, truncated, parts missing
    │   ├── ModelBusyError                       more is asked of a model in an app than it computes
    │   ├── OutputError                          the result cannot be written where it should go
    │   └── FrontendMissingError                 no converter environment for this kind of model
    ├── ConversionError                 exit 3   the model cannot be converted
    │   ├── UnsupportedModelError                opset, operator or type that nothing here can convert
    │   └── ParityError                          converted, but the result does not equal the source
    ├── LinkError                       exit 4   the board cannot be reached
    ├── JobError                        exit 5   the job on the board failed
    │   └── BoardBusyError
    └── RunInvalidError                 exit 6   a run that supports no verdict

An error says three things: what failed (``message``), the measured fact behind it (``message`` or ``details``) and what to type
next (``hint``). ``code`` is the stable word for programs; it is the class's own unless the raiser narrows it.

Imports the standard library only and runs on Python 3.8: the board uses it too.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional


class EdgekitError(Exception):
    """The root: carries ``code``, ``exit_code``, ``hint`` and ``details`` to whoever shows it."""

    code = "internal"
    exit_code = 70

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: Optional[str] = None,
        details: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: Dict[str, Any] = dict(details or {})
        if code is not None:
            self.code = code

    def as_dict(self) -> Dict[str, Any]:
        """The ``error`` object of the JSON contract: code, message, hint, details."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}


class UsageError(EdgekitError):
    """The call cannot be carried out as it was typed."""

    code = "usage"
    exit_code = 2


class RecipeError(UsageError):
    """A recipe or device profile has an unknown key or an impossible value."""

    code = "recipe_invalid"


class DataError(UsageError):
    """The data do not fit the model, or are no data."""

    code = "data_invalid"


class ModelFileError(UsageError):
    """The file is not a model, is truncated, or misses parts."""

    code = "model_file_invalid"


class ModelBusyError(UsageError):
    """A model in an app has no room for another input, and the app asked not to wait."""

    code = "model_busy"


class OutputError(UsageError):
    """The result cannot be written where it was asked for."""

    code = "output_unwritable"


class FrontendMissingError(UsageError):
    """No environment that can convert this kind of model is installed."""

    code = "frontend_missing"


class ConversionError(EdgekitError):
    """The model cannot be converted."""

    code = "conversion_failed"
    exit_code = 3


class UnsupportedModelError(ConversionError):
    """The model uses something that no front end or engine here can convert."""

    code = "model_unsupported"


class ParityError(ConversionError):
    """The converted model runs, but does not compute what the source computes."""

    code = "parity_failed"


class LinkError(EdgekitError):
    """The board cannot be reached."""

    code = "link_failed"
    exit_code = 4


class JobError(EdgekitError):
    """The job on the board ended without a result."""

    code = "job_failed"
    exit_code = 5


class BoardBusyError(JobError):
    """Another job holds the board."""

    code = "board_busy"


class RunInvalidError(EdgekitError):
    """The run exists, but supports no verdict."""

    code = "run_invalid"
    exit_code = 6
