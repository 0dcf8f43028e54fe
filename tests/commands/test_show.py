"""`tensorpact show`."""

import sys
from pathlib import Path

import pytest

from tensorpact.__main__ import main
from tensorpact.commands.finding import own_ops
from tensorpact.ops import kda_packed_decode

USER_MODULE = '''
import tensorpact as tp
import torch
from jaxtyping import Float

@tp.op
def halved(x: Float[torch.Tensor, "rows 2*half"]) -> Float[torch.Tensor, "rows half"]:
    """Halve."""
    return x[:, ::2]

class Holder:
    @tp.op
    def method(self, x: Float[torch.Tensor, "rows"]) -> None:
        """Do nothing."""

number = 3
'''


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with ops of its own, in the working directory."""
    name = "module_of_a_user"
    (tmp_path / f"{name}.py").write_text(USER_MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_show__lists_every_op_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(own_ops())
    assert all(len(line.split()) > 3 for line in lines)


def test_show__prints_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "kda_packed_decode"]) == 0
    out = capsys.readouterr().out
    assert out.rstrip() == str(kda_packed_decode.contract).rstrip()
    assert "mixed_qkv" in out


def test_show__prints_the_contract_of_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "FusedKVMaterializer.materialize"]) == 0
    assert "ctx_hidden" in capsys.readouterr().out


def test_show__source_is_the_generated_guard(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "kda_packed_decode", "--source"]) == 0
    out = capsys.readouterr().out
    assert out.rstrip() == kda_packed_decode.contract.source().rstrip()
    compile(out, "guard", "exec")


def test_show__unknown_op_hints_at_the_near_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "kda_paked_decode"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "tensorpact: there is no op 'kda_paked_decode'. Did you mean `kda_packed_decode`?\n"
    )


def test_show__imports_an_op_of_the_user(
    user_module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", f"{user_module}:halved", "--source"]) == 0
    assert capsys.readouterr().out.startswith("def halved(x):")


def test_show__imports_a_method_of_the_user(
    user_module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", f"{user_module}:Holder.method", "--source"]) == 0
    assert capsys.readouterr().out.startswith("def method(self, x):")


@pytest.mark.parametrize(
    ("attribute", "hint"),
    [
        ("halve", "Did you mean `halved`?"),
        ("number", "Known here: `Holder.method`, `halved`."),
        ("Holder", "Did you mean `Holder.method`?"),
    ],
)
def test_show__attribute_that_is_no_op_hints_at_the_near_name(
    user_module: str, attribute: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", f"{user_module}:{attribute}"]) == 2
    assert capsys.readouterr().err == (
        f"tensorpact: {user_module} has no op {attribute!r}. {hint}\n"
    )


def test_show__module_that_cannot_be_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "module_that_is_not_there:f"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tensorpact: the module 'module_that_is_not_there' cannot be imported")
