"""Errors of Helm, as sentences: one class for each case that a caller may handle differently."""

from __future__ import annotations

import re

from launcher.errors import LauncherError
from launcher.k8s.errors import CANNOT, OPERATORS, may_not
from launcher.k8s.rbac import Permission, indented_role


class HelmError(LauncherError):
    """Helm failed. The message is one sentence, or one for each chart rule that the values violate."""


class NoHelm(HelmError):
    """Helm is missing, does not run, or its version is not supported."""


class RulesBroken(HelmError):
    """The chart rejects the values. `sentences` lists the reasons."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


class NoRelease(HelmError):
    """The release does not exist."""


class InProgress(HelmError):
    """The release is locked by an operation that is running or was killed."""


class OwnedByAnother(HelmError):
    """An object with that name exists and does not belong to this release."""


_NOISE = ("level=", "walk.go:", "WARNING: Kubernetes configuration file", "Use --debug flag", "WARNING:")
_EXISTS = re.compile(
    r'(?P<kind>\w+) "(?P<name>[^"]+)" in namespace "(?P<namespace>[^"]*)" exists and cannot be imported'
    r"(?P<rest>.*)",
    re.DOTALL,
)
_OWNER = re.compile(r'"meta\.helm\.sh/release-(name|namespace)"[^;]*?current value is "([^"]+)"')


def from_stderr(text: str, *, where: str = "the cluster", release: str = "") -> HelmError:
    """Return the error for the text that Helm wrote to stderr. `where` names the cluster in the message."""
    message = _message(text)
    if broken := _chart_rules(message):
        return RulesBroken(broken)
    flat = " ".join(message.split())
    lower = flat.lower()
    if "release: not found" in lower or "release not loaded" in lower:
        return NoRelease(f"There is no release {release} in {where}.")
    if "release name is invalid" in lower:
        return HelmError(
            f'"{release}" is not a valid release name; use at most 53 lowercase letters, digits and hyphens.'
        )
    if "another operation" in lower and "is in progress" in lower:
        return InProgress(
            f"The release {release} is locked: another Helm process is changing it, or one was killed while it changed "
            "it."
        )
    if match := _EXISTS.search(flat):
        return _unowned(match, where, release)
    if "cluster unreachable" in lower:
        return HelmError(*_unreachable(flat, where))
    if match := CANNOT.search(flat):
        return _forbidden(match, where)
    if match := re.search(r'no matches for kind "([^"]+)" in version "([^"]+)"', flat):
        group = match[2].rpartition("/")[0]
        operator = OPERATORS.get(group)
        missing = f"{operator} is not installed there" if operator else f"nothing there serves {match[2]}"
        return HelmError(
            f"{_first(where)} does not serve the kind {match[1]} of {match[2]}: {missing}, or its version is not "
            "supported.",
            "launcher doctor shows what the cluster has.",
        )
    if match := re.search(r'namespaces? "([^"]+)" not found', flat):
        return HelmError(
            f"There is no namespace {match[1]} in {where}.",
            f"kubectl create namespace {match[1]}, or choose another with -n.",
        )
    if "conflict occurred while applying" in lower or re.search(r"conflicts? with \"", lower):
        return HelmError(
            f"{_first(where)} rejects the change: objects of the release were changed by hand. {_trimmed(flat)}",
            "Add that change to the values, or undo it, and try again.",
        )
    if "timed out" in lower or "deadline exceeded" in lower:
        return HelmError(f"Helm timed out: {_trimmed(flat)}", "Allow more time with --timeout.")
    return HelmError(f"Helm failed: {_trimmed(flat)}")


def _message(text: str) -> str:
    """Return the error text from the last "Error: " on, without Helm's log lines."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_NOISE)]
    starts = [index for index, line in enumerate(lines) if line.startswith("Error: ")]
    return (
        "\n".join(lines[starts[-1] :] if starts else lines).removeprefix("Error: ").strip() or "it printed no reason."
    )


def _chart_rules(message: str) -> list[str]:
    """Return the sentences of a chart's `fail` or of its schema, or of its kubeVersion; [] for any other error."""
    head, _, rest = message.partition("\n")
    if "execution error at (" in head:
        inline = head.rpartition("): ")[2].strip()
        return [line.strip() for line in [inline, *rest.splitlines()] if line.strip()]
    if "don't meet the specifications of the schema" in head:
        return [line.strip().removeprefix("- ") for line in rest.splitlines() if line.strip().startswith("- ")]
    if match := re.search(r"chart requires kubeVersion: (\S+) which is incompatible with Kubernetes (\S+)", message):
        wanted = match[1].removeprefix(">=").removesuffix("-0")
        return [f"The cluster runs Kubernetes {match[2]}; Slipway's charts need {wanted} or newer."]
    return []


def _unowned(match: re.Match[str], where: str, release: str) -> OwnedByAnother:
    owner = dict(_OWNER.findall(match["rest"]))
    name = owner.get("name") or (release if owner else "")
    return unowned(match["kind"], match["name"], match["namespace"], where, name, owner.get("namespace", ""), release)


def unowned(kind: str, name: str, namespace: str, where: str, owner: str, space: str, release: str) -> OwnedByAnother:
    """Return the error for an existing object that belongs to the release `owner` in `space`, or to none."""
    whose = "was not created by a Helm release"
    if owner:
        whose = f"belongs to the release {owner}" + (f" in the namespace {space}" if space else "")
    hint = "install does not take over existing objects: choose another name in the values"
    if owner and owner == release:
        hint = f"If you mean that release, add -n {space}; otherwise choose another name in the values"
    elif kind in ("ClusterQueue", "Cohort", "ResourceFlavor", "Topology", "WorkloadPriorityClass"):
        hint += ", or set create: false in its entry to use the existing object"
    called = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    return OwnedByAnother(f"{called} already exists in {where} and {whose}; nothing was changed.", f"{hint}.")


def _unreachable(flat: str, where: str) -> tuple[str, str]:
    if match := re.search(r'context "([^"]*)" does not exist', flat):
        return f'The kubeconfig has no context "{match[1]}".', "kubectl config get-contexts lists them."
    flat = re.sub(r" \(possibly because of .*\)", "", flat)
    cause = flat.partition("nreachable: ")[2].rpartition(": ")[2] or flat
    if "the server has asked for the client to provide credentials" in flat or "Unauthorized" in flat:
        return (
            f"The API server of {where} rejects your credentials: the token or certificate is missing or expired.",
            "Log in again (on GKE: gcloud auth login), and check that kubectl get pods works.",
        )
    if "getting credentials: " in flat:
        plugin = flat.partition("getting credentials: ")[2].removeprefix("exec: ").rstrip(".")
        return f"The credential plugin of {where} failed: {plugin}.", "On GKE: gcloud auth login."
    return (
        f"The API server of {where} does not answer: {cause}.",
        "Check the network or VPN, and that this is the cluster you mean: kubectl config current-context.",
    )


def _forbidden(match: re.Match[str], where: str) -> HelmError:
    right = Permission(match["verb"], match["resource"], match["group"])
    why = " Helm keeps its releases in Secrets." if right.resource == "secrets" else ""
    role = indented_role(right, match["namespace"] or "")
    return HelmError(may_not(match, where) + why, f"A platform engineer can apply this, and bind it to you:\n{role}")


# The text that Helm, its client and Go add before and around the API server's message. Compiled when it is first used.
_WRAPPED = (
    r"UPGRADE FAILED: |INSTALLATION FAILED: |ROLLBACK FAILED: |release \S+ failed[,:] |failed to \w+ release[^:]*: "
    r"|failed to \w+ resource[^:]*: "
    r"|an error occurred while [^:.]*\. |an error occurred while [^:]*: |original \w+ error: "
    r"|and has been (rolled back|uninstalled) due to \S+ being set: |cannot patch \S+ with kind \S+: "
    r"|server-side apply failed for object \S+ [^:]*: |unable to \w+ with \w+: |client rate limiter [^:]*: "
)


def _trimmed(flat: str) -> str:
    """Return the API server's message (the first of several) from Go's chain of wrapped errors, as a sentence."""
    cause = flat.split("original upgrade error: ")[-1].split(" && ")[0]
    while match := re.match(_WRAPPED, cause):
        cause = cause[match.end() :]
    if match := re.search(r'admission webhook "([^"]+)" denied the request: (.*)', cause):
        cause = f"{match[2].rstrip('.')} (from the admission webhook {match[1]})"
    elif match := re.search(
        r"(\S+ \"[^\"]+\") is forbidden: ValidatingAdmissionPolicy '([^']+)'.*?request: (.*)", cause
    ):
        cause = f"{match[1]}: {match[3].rstrip('.')} (from the policy {match[2]})"
    cause = cause[:600]
    return cause if cause.endswith((".", "!", "?")) else cause + "."


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]
