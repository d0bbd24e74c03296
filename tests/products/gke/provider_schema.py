"""The schema of Terraform's provider google: the arguments of the resources that terraform.py declares.

    python -m tests.products.gke.provider_schema

writes provider-schema.json from the release of the provider's bindings for Python on PyPI (49 MB, so the tests do not
download it). The bindings were generated from the provider's own schema. The file has names and types only:

    "name": "string!"                                       an argument; ! marks a required one
    "taint": {"max": 0, "required": false, "block": {…}}    a block; max is the largest number of them, 0: any number
    "//read": ["name", "email"]                             what expressions can read

Read-only attributes are not arguments, so the tests reject them as such.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

DISTRIBUTION = "cdktf-cdktf-provider-google"
RELEASE = "16.12.1"
FILE = Path(__file__).with_name("provider-schema.json")
READ = "//read"
"""The key of the names of a type's attributes that expressions can read, including its arguments of simple types."""
TYPES = (
    "provider",
    "data-google-project",
    "artifact-registry-repository",
    "artifact-registry-repository-iam-member",
    "compute-router",
    "compute-router-nat",
    "container-cluster",
    "container-node-pool",
    "project-iam-member",
    "project-service",
    "service-account",
    "service-account-iam-member",
    "storage-bucket",
    "storage-bucket-iam-member",
)
"""The names of the folders in the bindings."""

_SIMPLE = {"string": "string", "number": "number", "boolean": "bool", "stringMap": "map(string)"}
_LISTS = {"stringList": "string", "numberList": "number"}
_RESOURCE_TYPE = re.compile(r'\.tfResourceType = "(\w+)";')
_PROVIDER = re.compile(r"providers/hashicorp/google/([0-9.]+)/")
_FUNCTION = re.compile(r"^function (\w+)ToHclTerraform\(struct\) \{$(.*?)^\}$", re.DOTALL | re.MULTILINE)
_TOP = re.compile(r"^    synthesizeHclAttributes\(\) \{$(.*?)^    \}$", re.DOTALL | re.MULTILINE)
_ATTRIBUTE = re.compile(
    r'^ +(\w+): \{\n +value: (.+),\n +isBlock: (true|false),\n +type: "(\w+)",\n +storageClassType: "(\w+)",$',
    re.MULTILINE,
)
_MEMBER = re.compile(r"(?:struct\.|this\._)(\w+?)(?:\.internalValue)?\)$")
_NESTED = re.compile(r"(\w+)ToHclTerraform\b")
_INTERFACE = re.compile(r"^export interface (\w+) (?:extends \S+ )?\{$(.*?)^\}$", re.DOTALL | re.MULTILINE)
_READ = re.compile(r"this\.get\w+Attribute\('(\w+)'\)")
_CONFIG = re.compile(r"^export interface (\w+) extends cdktf\.TerraformMetaArguments \{$", re.MULTILINE)
_PROPERTY = re.compile(r"^    readonly (\w+)(\??):", re.MULTILINE)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{DISTRIBUTION}=={RELEASE}"
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, wanted]
        subprocess.run(download, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        found = extract(wheel)
    FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def extract(wheel: Path) -> dict[str, Any]:
    """Return the provider's version, and the arguments of each type by its name in Terraform (data.google_project)."""
    versions: set[str] = set()
    types: dict[str, Any] = {}
    with zipfile.ZipFile(wheel) as packed:
        (inner,) = (name for name in packed.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(packed.read(inner))) as files:
            texts: dict[str, list[str]] = {}
            for member in files:
                _, _, path = member.name.partition("package/lib/")
                folder, _, rest = path.partition("/")
                if folder in TYPES and rest.endswith((".js", ".d.ts")) and (file := files.extractfile(member)):
                    texts.setdefault(folder, []).append(file.read().decode())
    for folder in TYPES:
        text = "\n".join(texts[folder])
        versions.update(_PROVIDER.findall(text))
        (name,) = _RESOURCE_TYPE.findall(text)
        types[f"data.{name}" if folder.startswith("data-") else name] = _type(text)
    (version,) = versions
    return {"provider": version, "types": types}


def _type(text: str) -> dict[str, Any]:
    """Return the arguments of a type. `text` is its JavaScript and its declarations."""
    functions = {name[0].upper() + name[1:]: body for name, body in _FUNCTION.findall(text)}
    required = {
        name: {member for member, optional in _PROPERTY.findall(body) if not optional}
        for name, body in _INTERFACE.findall(text)
    }
    (config,) = _CONFIG.findall(text) or ["GoogleProviderConfig"]
    (top,) = _TOP.findall(text)
    read = _READ.findall(text[: text.index("    synthesizeAttributes() {")].rpartition("\nclass ")[2])
    return {**_block(top, config, functions, required), READ: sorted(read)}


def _block(body: str, name: str, functions: dict[str, str], required: dict[str, set[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute, value, is_block, shape, kind in _ATTRIBUTE.findall(body):
        member = _MEMBER.search(value)
        if member is None:
            raise ValueError(f"{name}.{attribute} has an unknown form: {value}")
        must = member[1] in required[name]
        if is_block == "true":
            nested = _NESTED.findall(value)[-1]
            nested = nested[0].upper() + nested[1:]
            inner = _block(functions[nested], nested, functions, required)
            found[attribute] = {"max": 0 if "listMapperHcl" in value else 1, "required": must, "block": inner}
        elif attribute != "id":  # the bindings add it to every type
            form = f"{shape}({_LISTS[kind]})" if kind in _LISTS else _SIMPLE[kind]
            found[attribute] = form + ("!" if must else "")
    return found


if __name__ == "__main__":
    main()
