"""Parts by name, import path and file, and errors that say where a part stands."""

import pickle
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from seele import plugins
from seele.errors import ConfigError

BUILT_IN = {"own": int}


def find(spec):
    return plugins.find_part(spec, key="seele.some.key", group="parts", built_in=BUILT_IN)


@pytest.fixture
def module(tmp_path):
    """Write a module of the user's and return its path."""

    def write(text):
        file = tmp_path / "my_part.py"
        file.write_text(text)
        return file

    return write


def test_built_in_names_import_paths_and_files_are_found(module, monkeypatch):
    file = module("class Part:\n    class Inner:\n        pass\n\n\ndef function():\n    return 7\n")
    assert find("own") is int
    assert find("collections:OrderedDict").__name__ == "OrderedDict"
    assert find(f"{file}:function")() == 7
    assert find(f"{file}:Part.Inner").__qualname__ == "Part.Inner"
    monkeypatch.chdir(file.parent)
    assert find("my_part.py:Part") is find(f"{file}:Part"), "a file is loaded once"


def test_an_entry_point_of_an_installed_package_is_found(monkeypatch):
    point = EntryPoint("theirs", "collections:Counter", "seele.parts")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == "seele.parts" else [])
    assert find("theirs").__name__ == "Counter"
    with pytest.raises(ConfigError, match=r"unknown name 'other'; allowed are \['own', 'theirs'\], package"):
        find("other")


def test_a_part_of_a_file_can_be_pickled(module):
    file = module("class Part:\n    def __init__(self):\n        self.value = 3\n")
    assert pickle.loads(pickle.dumps(find(f"{file}:Part")())).value == 3


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("x = 1\ny = 1 / 0\n", "x", r"ZeroDivisionError: division by zero \(.*my_part.py:2\)"),
        ("def f(:\n", "f", r"SyntaxError"),
        ("import no_such_module\n", "f", r"No module named 'no_such_module' \(.*my_part.py:1\)"),
        ("def other(): pass\n", "f", r"my_part.py has no 'f'; it has \['other'\]"),
    ],
)
def test_a_broken_file_is_named_with_its_line(module, text, name, message):
    file = module(text)
    before = set(sys.modules)
    for _ in range(2):  # a module that failed is not there the second time
        with pytest.raises(ConfigError, match=f"seele.some.key: .*{message}"):
            find(f"{file}:{name}")
    assert (
        not any(each.startswith("seele_plugin_") for each in sys.modules.keys() - before) or "other" in text
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no/such/file.py:f", "no file 'no/such/file.py'"),
        ("no_such_package.module:f", "No module named 'no_such_package'"),
        ("collections:no_such_name", "no_such_name"),
    ],
)
def test_what_is_not_there_is_said(spec, message):
    with pytest.raises(ConfigError, match=message):
        find(spec)


def test_a_file_is_found_from_any_folder(module, monkeypatch, tmp_path):
    file = module("def f(): pass\n")
    monkeypatch.chdir(tmp_path)
    assert plugins.absolute("my_part.py:f") == f"{file}:f"
    assert plugins.absolute("package.module:f") == "package.module:f"
    assert plugins.absolute("bayes") == "bayes"


def test_a_missing_method_is_named_with_file_and_line(module):
    file = module("\n\nclass Part:\n    def there(self): pass\n")
    with pytest.raises(ConfigError, match=rf"key: {file}:3 lacks \['absent'\]"):
        plugins.require_members(find(f"{file}:Part"), ["there", "absent"], key="key")


def test_where_an_error_was_raised_is_the_innermost_line(module):
    file = module("def f():\n    raise ValueError")
    part = find(f"{file}:f")
    with pytest.raises(ValueError) as raised:
        part()
    assert plugins.where_raised(raised.value).endswith("my_part.py:2")
    assert Path(plugins.where(part).rpartition(":")[0]).name == "my_part.py"


def test_a_mistake_is_looked_for_in_the_parts_own_file(module):
    file = module("import json\n\n\ndef f(text):\n    return json.loads(text)\n")
    part = find(f"{file}:f")
    with pytest.raises(ValueError) as raised:
        part("{")
    assert plugins.where_in(part, raised.value) == f"{file}:5"
    with pytest.raises(TypeError) as raised:
        part()
    assert plugins.where_in(part, raised.value) == f"{file}:4"


def test_addresses_and_texts_are_no_import_paths():
    assert all(map(plugins.is_import_path, ["a.b:C", "a/b.py:C.d", "/a b/c.py:D"]))
    assert not any(map(plugins.is_import_path, ["a", "hf://a/b", "http://a:8000/v1", "Question: {question}"]))
