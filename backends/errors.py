"""What goes wrong between an op and its backends; a broken contract is none of it."""

from __future__ import annotations


class BackendError(RuntimeError):
    """Base of the errors about backends. A `ContractError` is never one of these."""


class BackendRegistrationError(BackendError):
    """An implementation does not fit the contract it is registered for."""


class BackendUnavailableError(BackendError):
    """The named backend, or every backend, cannot run this call; the text says why."""
