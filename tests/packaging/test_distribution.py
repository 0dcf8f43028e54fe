"""What `python -m build` makes holds all of the project's sources and nothing besides."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

REPOSITORY = Path(__file__).parents[2]

# The folders that are shipped, and where they lie inside the wheel.
ROOTS = {
    "src/tensorpact": "tensorpact",
    "backends": "tensorpact/backends",
    "contracts": "tensorpact/contracts",
    "ops": "tensorpact/ops",
}

# The folders of which an sdist holds every file.
FOLDERS = ["src", "backends", "contracts", "ops", "benchmarks", "docs", "tests"]

NOT_SOURCES = shutil.ignore_patterns(".*", "__pycache__", "*.py[co]", "*~", "_build")


def build(source: Path, kind: str, destination: Path) -> Path:
    """Build one distribution offline, with the setuptools of this environment."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}"]
    command += ["--outdir", str(destination), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = destination.iterdir()
    return built


def files_below(folder: Path) -> set[str]:
    """Paths of all files below a folder, relative to it."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def dist_info(wheel: Path) -> str:
    """The name of a wheel's metadata folder."""
    name, version = wheel.name.split("-")[:2]
    return f"{name}-{version}.dist-info"


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel but its list of hashes, whose order is free."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith(("/", "/RECORD"))]
        return {name: archive.read(name) for name in names}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository: a build leaves files behind, and would pick up an earlier one's."""
    copy = tmp_path_factory.mktemp("sources") / "tensorpact"
    for folder in FOLDERS:
        shutil.copytree(REPOSITORY / folder, copy / folder, ignore=NOT_SOURCES)
    for path in REPOSITORY.iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    return copy


@pytest.fixture(scope="module")
def expected(sources: Path) -> set[str]:
    """Where each shipped source file has to be found in the wheel."""
    return {
        f"{package}/{name}"
        for root, package in ROOTS.items()
        for name in files_below(sources / root)
    }


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(sources, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(sources, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return unpacked


@pytest.mark.parametrize("package", ROOTS.values())
def test_every_root_has_python_files(package: str, expected: set[str]) -> None:
    assert f"{package}/__init__.py" in expected


def test_wheel_holds_every_package(wheel: Path, expected: set[str]) -> None:
    wanted = {PurePosixPath(name).parent for name in expected if name.endswith(".py")}
    shipped = {PurePosixPath(name).parent for name in contents(wheel) if name.endswith(".py")}
    missing = sorted(".".join(folder.parts) for folder in wanted - shipped)
    assert not missing, f"add to `packages` under [tool.setuptools] in pyproject.toml: {missing}"


def test_every_package_has_an_init(expected: set[str]) -> None:
    folders = {PurePosixPath(name).parent for name in expected if name.endswith(".py")}
    without = sorted(str(folder) for folder in folders if f"{folder}/__init__.py" not in expected)
    assert not without, f"an import of these would make namespace packages: {without}"


def test_wheel_holds_every_file(wheel: Path, expected: set[str]) -> None:
    missing = sorted(expected - contents(wheel).keys())
    assert not missing, f"add their kind to [tool.setuptools.package-data]: {missing}"


def test_wheel_holds_nothing_else(wheel: Path, expected: set[str]) -> None:
    surplus = contents(wheel).keys() - expected
    assert {name.split("/")[0] for name in surplus} == {dist_info(wheel)}


def test_wheel_is_typed_and_licensed(wheel: Path) -> None:
    files = contents(wheel)
    assert "tensorpact/py.typed" in files
    licence = files[f"{dist_info(wheel)}/licenses/LICENSE"]
    assert licence == (REPOSITORY / "LICENSE").read_bytes()
    metadata = files[f"{dist_info(wheel)}/METADATA"].decode()
    assert "License-Expression: Apache-2.0\n" in metadata


def test_wheel_has_the_command(wheel: Path) -> None:
    entry_points = contents(wheel)[f"{dist_info(wheel)}/entry_points.txt"].decode()
    assert "tensorpact = tensorpact.__main__:main" in entry_points


@pytest.mark.parametrize(
    "name",
    [
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "constraints.txt",
        "pyproject.toml",
    ],
)
def test_sdist_holds(name: str, unpacked_sdist: Path) -> None:
    assert (unpacked_sdist / name).read_bytes() == (REPOSITORY / name).read_bytes()


@pytest.mark.parametrize("folder", FOLDERS)
def test_sdist_holds_every_file_of(folder: str, sources: Path, unpacked_sdist: Path) -> None:
    assert files_below(sources / folder) == files_below(unpacked_sdist / folder)


def test_wheel_from_sdist_is_the_same(wheel: Path, unpacked_sdist: Path, tmp_path: Path) -> None:
    again = build(unpacked_sdist, "wheel", tmp_path)
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)
