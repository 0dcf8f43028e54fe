"""How ops are computed: the registry of implementations, and the choice among them."""

from tensorpact.backends.choice import use_backend
from tensorpact.backends.dispatch import DispatchReport
from tensorpact.backends.errors import (
    BackendError,
    BackendRegistrationError,
    BackendUnavailableError,
)
from tensorpact.backends.registry import implements, registry
from tensorpact.backends.requirements import Requirements

__all__ = [
    "BackendError",
    "BackendRegistrationError",
    "BackendUnavailableError",
    "DispatchReport",
    "Requirements",
    "implements",
    "registry",
    "use_backend",
]
