"""Every error that a user can meet, drawn once.

    OnbudgetError                     exit code 1 unless said otherwise
    ├── UsageError            2       a flag, a setting or a file name that cannot be meant
    ├── BundleError                   the model file cannot be read, or cannot be used as asked
    ├── ProviderError                 a required execution provider is not active
    ├── DependencyError               an optional package is missing; the message names the extra
    ├── ExportFailed                  a module cannot be made or exported; names the line that raised
    ├── GateFailed            12      parity, fusing or accuracy is outside its tolerance
    ├── TargetError                   the server under test cannot be reached, or does not take the requests
    ├── RecordError                   a measurement's record cannot be read
    ├── MeasurementInvalid    11      a load test cannot be believed
    ├── Infeasible            13      no configuration holds the budget; names the nearest that one would
    └── RequestError                  one request's own fault or fate; carries an HTTP status
        ├── NotParseable      400     the body is not what its type says
        ├── Unauthorized      401     no API key, or one that is not among the server's
        ├── UnknownModel      404     no such model or version
        ├── SlowClient        408     the body did not arrive in time
        ├── TooLarge          413     over a stated limit
        ├── WrongType         415     a content type outside the accepted set
        ├── BadContent        422     right shape, wrong content; names the item
        ├── Shed              429     refused by admission; says when to come back
        ├── RunFailed         500     the model's run raised; every request of its batch hears it
        └── NotReady          503     loading or draining; says when to come back

`docs/reference/errors.md` shows the same tree; a test holds the two together.
"""

from __future__ import annotations

from typing import ClassVar


class OnbudgetError(Exception):
    """Something that a user can act on: the message says what, where and what to do next."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"


class UsageError(OnbudgetError):
    """A flag, a setting or a file name that cannot be meant."""

    exit_code = 2
    code = "usage"


class BundleError(OnbudgetError):
    """The model file cannot be read, or cannot be used as asked."""

    code = "bundle"


class ProviderError(OnbudgetError):
    """A required execution provider is not the active one."""

    code = "provider"


class DependencyError(OnbudgetError):
    """An optional package is missing; the message names the extra that brings it."""

    code = "dependency"


class ExportFailed(OnbudgetError):
    """A module cannot be made, or no exporter takes it; the message carries its own error and the line."""

    code = "export-failed"


class GateFailed(OnbudgetError):
    """A measured difference is outside its tolerance (parity, fusing, accuracy)."""

    exit_code = 12
    code = "gate-failed"


class TargetError(OnbudgetError):
    """The server under test cannot be reached, or does not take the requests that it would be sent."""

    code = "target"


class RecordError(OnbudgetError):
    """The record of a measurement cannot be read: damaged, cut short, or from a newer version."""

    code = "record"


class MeasurementInvalid(OnbudgetError):
    """A measurement that cannot be believed: the generator slipped, or the system never settled."""

    exit_code = 11
    code = "measurement-invalid"


class Infeasible(OnbudgetError):
    """No configuration holds the budget under the loads; the message names what stands in the way, and the nearest."""

    exit_code = 13
    code = "infeasible"


class RequestError(OnbudgetError):
    """One request's own fault or fate.

    `status` is the HTTP status; `detail` is what the caller reads; `retry_after_s`, where it is set, is seconds until
    another try makes sense; `reason` is a word for metrics and for the body of a refusal; `headers` go with the answer.
    """

    status: ClassVar[int] = 500
    reason: str | None = None
    retry_after_s: float | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def detail(self) -> str:
        """What the caller reads."""
        return str(self)


class NotParseable(RequestError):
    """The body is not what its content type says."""

    status = 400
    code = "not-parseable"


class Unauthorized(RequestError):
    """No API key, or one that is not among the server's; never says which keys there are."""

    status = 401
    code = "unauthorized"
    headers = ((b"www-authenticate", b'Bearer realm="onbudget"'),)


class UnknownModel(RequestError):
    """No such model or version here."""

    status = 404
    code = "unknown-model"


class SlowClient(RequestError):
    """The rest of the request did not arrive in time."""

    status = 408
    code = "slow-client"


class TooLarge(RequestError):
    """Over a stated limit; the message names the limit and its flag."""

    status = 413
    code = "too-large"


class WrongType(RequestError):
    """A content type outside the accepted set; the message lists the set."""

    status = 415
    code = "wrong-type"


class BadContent(RequestError):
    """Right shape, wrong content; the message names the item from both ends."""

    status = 422
    code = "bad-content"


class Shed(RequestError):
    """Refused by admission, or expired in the queue; nothing was computed."""

    status = 429
    code = "shed"

    def __init__(self, message: str, *, reason: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class RunFailed(RequestError):
    """The model's run raised, or was stopped by the watchdog."""

    status = 500
    code = "run-failed"


class NotReady(RequestError):
    """The server is loading or draining."""

    status = 503
    code = "not-ready"

    def __init__(self, message: str, *, reason: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s
