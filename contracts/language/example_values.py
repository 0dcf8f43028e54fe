"""The arguments of a drawn call, once everything about them is chosen."""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Mapping
from typing import Any

import torch

from tensorpact.contracts.language.evaluation import Unbound, Values, evaluate
from tensorpact.contracts.language.example_call import DrawnCall, relation_trees
from tensorpact.contracts.language.example_forms import NoExampleError, tuple_hints
from tensorpact.contracts.language.expression import Method, Name, walk
from tensorpact.contracts.language.filling import make_tensor
from tensorpact.contracts.language.parameters import Parameter, Slot
from tensorpact.contracts.language.rows import Predicate

_UNIONS = (typing.Union, types.UnionType)
_PLAIN = {int: 1, float: 0.5, bool: False, str: "text"}


def build_call(call: DrawnCall, generator: random.Random, seed: int) -> dict[str, Any]:
    """Make the tensors; return every argument by name.

    Raises:
        NoExampleError: an opaque predicate does not hold.
    """
    torch_generator = torch.Generator().manual_seed(seed)
    dims = {**call.dims, **_let_values(call)}
    values = Values(dims, call.arguments)
    dense = _layout_readers(call)
    made = {
        tensor.name: make_tensor(
            tensor, values, generator, torch_generator, dense=tensor.slot.name in dense
        )
        for tensor in call.all_tensors()
    }
    arguments = {
        parameter.name: _argument(call, parameter, made)
        for parameter in call.contract.parameters
        if parameter.name in call.forms
    }
    _check_predicates(call, arguments)
    return arguments


def _let_values(call: DrawnCall) -> dict[str, Any]:
    values = Values(call.dims, call.arguments)
    found: dict[str, Any] = {}
    for name, tree in call.lets.items():
        if call.reads(tree) is not None:
            found[name] = evaluate(tree, values)
    return found


def _layout_readers(call: DrawnCall) -> set[str]:
    """Return the tensors whose layout a relation reads."""
    return {
        node.owner.id
        for tree in relation_trees(call.contract)
        for node in walk(tree)
        if isinstance(node, Method) and isinstance(node.owner, Name)
        if node.name in ("stride", "is_contiguous")
    }


def _argument(call: DrawnCall, parameter: Parameter, made: Mapping[str, torch.Tensor]) -> Any:
    form = call.forms[parameter.name]
    if form.kind == "value":
        return form.value
    if form.kind == "scalar":
        return call.dims[parameter.name]
    if form.kind == "sizes":
        return _sizes_of_class(parameter.hint, call.dims[parameter.name])
    slot = parameter.slots[0]
    if not slot.path:
        return _slot_value(call, slot, made)
    by_position = {slot.path[0]: slot for slot in parameter.slots}
    return tuple(
        _slot_value(call, by_position[index], made)
        if index in by_position
        else _plain_value(hint, parameter)
        for index, hint in enumerate(tuple_hints(parameter.hint))
    )


def _slot_value(call: DrawnCall, slot: Slot, made: Mapping[str, torch.Tensor]) -> Any:
    tensors = [made[tensor.name] for tensor in call.tensors[slot.name]]
    if slot.repeated is None:
        return tensors[0]
    return tensors if slot.repeated is list else tuple(tensors)


def _check_predicates(call: DrawnCall, arguments: Mapping[str, Any]) -> None:
    values = Values({**call.dims, **_let_values(call)}, arguments)
    for condition in call.contract.where:
        if not isinstance(condition, Predicate):
            continue
        when = condition.when
        if when is not None and (call.reads(when) is None or not evaluate(when, values)):
            continue
        try:
            given = {name: values.read(name) for name in condition.names}
        except Unbound:
            continue
        if any(value is None for value in given.values()) or condition.function(**given):
            continue
        raise NoExampleError(
            f"the predicate {condition.text!r} refuses the drawn call. It is opaque: a draw "
            "cannot look inside it and fit the dims to it; fix some with `sizes`."
        )


def _sizes_of_class(hint: Any, sizes: tuple[int, ...]) -> Any:
    if hint is torch.Size:
        return torch.Size(sizes)
    members = typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)
    if torch.Size in members:
        return torch.Size(sizes)
    return list(sizes) if any(typing.get_origin(m) is list for m in members) else sizes


def _plain_value(hint: Any, parameter: Parameter) -> Any:
    """Return a value for an item of a tuple that is no tensor."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint in (Any, object) or type(None) in typing.get_args(hint):
        return None
    raise NoExampleError(f"an item of `{parameter.name}` cannot be made up: `{hint}`.")
