"""Bills of materials in CycloneDX 1.6: what a wheel needs, and what is in an image.

In: a lock file and, of an image, the list that dpkg keeps. Out: JSON that was held against CycloneDX's own schema. A
package has the hashes of all its files in the lock, of which a machine installs one.
"""

from __future__ import annotations

import email
import hashlib
from collections.abc import Iterable
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement


def locked(lock: str, python: str) -> list[Component]:
    """The packages of a lock file that this version of Python installs, such as "3.12.1"."""
    found = []
    for entry in lock.replace("\\\n", " ").splitlines():
        text, *hashes = entry.split("--hash=sha256:")
        needed = Requirement(text.strip())
        if needed.marker is None or needed.marker.evaluate({"python_full_version": python}):
            version = str(needed.specifier).removeprefix("==")
            found.append(component(PackageURL("pypi", None, needed.name, version), (one.strip() for one in hashes)))
    return found


def of_debian(status: str, distribution: str) -> list[Component]:
    """The packages that dpkg says are installed; `distribution` is such as "debian-12"."""
    found = []
    for paragraph in status.split("\n\n"):
        said = email.message_from_string(paragraph.lstrip())
        if said["Status"] == "install ok installed":
            qualifiers = {"arch": said["Architecture"], "distro": distribution}
            if said["Source"]:
                qualifiers["upstream"] = said["Source"].split()[0]
            found.append(component(PackageURL("deb", "debian", said["Package"], said["Version"], qualifiers)))
    return found


def component(url: PackageURL, hashes: Iterable[str] = ()) -> Component:
    """A package, with the SHA-256 of its files."""
    kept = [HashType(alg=HashAlgorithm.SHA_256, content=one) for one in hashes]
    return Component(name=url.name, version=url.version, purl=url, bom_ref=url.to_string(), hashes=kept)


def bill(file: Path, kind: ComponentType, version: str, components: list[Component]) -> str:
    """The bill of a file of the project. Raises ValueError where CycloneDX's schema refuses it."""
    sha256 = HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(file.read_bytes()).hexdigest())
    root = Component(name="stream-learner", version=version, type=kind, bom_ref=file.name, hashes=[sha256])
    bom = Bom(components=components)
    bom.metadata.component = root
    bom.register_dependency(root, components)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    refused = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if refused is not None:
        raise ValueError(f"the bill of {file.name} is not CycloneDX 1.6: {refused}")
    return text
