"""What ops promise: the contract language, the checker, and one file of contracts per op family."""

from tensorpact.contracts.checker.errors import ContractError, ContractTypeError, Violation
from tensorpact.contracts.checker.mode import mode
from tensorpact.contracts.language.contract import Contract, contract
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.facets import (
    AnyDevice,
    Contiguous,
    Facet,
    Finite,
    IndexInto,
    InRange,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
    SameDevice,
    SameDtype,
    Strides,
)
from tensorpact.contracts.language.rows import predicate, raises, relation

__all__ = [
    "AnyDevice",
    "Contiguous",
    "Contract",
    "ContractDefinitionError",
    "ContractError",
    "ContractTypeError",
    "Facet",
    "Finite",
    "InRange",
    "IndexInto",
    "Is",
    "LastDimContiguous",
    "Mutated",
    "NoAlias",
    "SameDevice",
    "SameDtype",
    "Strides",
    "Violation",
    "contract",
    "mode",
    "predicate",
    "raises",
    "relation",
]
