"""The messages for what both Helms print; the texts were recorded from them."""

from __future__ import annotations

import pytest

from launcher.helm import errors
from launcher.helm.errors import HelmError, InProgress, NoRelease, OwnedByAnother, RulesBroken, from_stderr

EXISTS = (
    "exists and cannot be imported into the current release: invalid ownership metadata; annotation validation error: "
)
OTHER = (
    'key "meta.helm.sh/release-name" must equal "other": current value is "queues"; annotation validation error: '
    'key "meta.helm.sh/release-namespace" must equal "research": current value is "platform"'
)
NOBODYS = (
    'label validation error: missing key "app.kubernetes.io/managed-by": must be set to "Helm"; annotation validation '
    'error: missing key "meta.helm.sh/release-name": must be set to "other"'
)


@pytest.mark.parametrize(
    ("printed", "kind", "message"),
    [
        (
            "walk.go:75: found symbolic link\nError: execution error at (run/templates/validate.yaml:2:4): \n"
            "image.tag is empty; give one.\nstorage.bucket is empty.\n\nUse --debug flag to render out invalid YAML\n",
            RulesBroken,
            "image.tag is empty; give one.\nstorage.bucket is empty.",
        ),
        (
            "level=INFO\nError: values don't meet the specifications of the schema(s) in the following chart(s):\n"
            "run:\n- at '/run': additional properties 'nme' not allowed\n",
            RulesBroken,
            "at '/run': additional properties 'nme' not allowed",
        ),
        (
            "Error: chart requires kubeVersion: >=1.33.0-0 which is incompatible with Kubernetes v1.30.0\n",
            RulesBroken,
            "The cluster runs Kubernetes v1.30.0; Slipway's charts need 1.33.0 or newer.",
        ),
        ("Error: release: not found\n", NoRelease, "There is no release x in the cluster c."),
        (
            "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress\n",
            InProgress,
            "The release x is locked: another Helm process is changing it, or one was killed while it changed it.",
        ),
        (
            f'Error: unable to continue with install: NetworkPolicy "i" in namespace "i" {EXISTS}{OTHER}\n',
            OwnedByAnother,
            "NetworkPolicy i/i already exists in the cluster c and belongs to the release queues in the namespace "
            "platform; nothing was changed.",
        ),
        (
            f'Error: Unable to continue with install: ResourceFlavor "v" in namespace "" {EXISTS}{NOBODYS}\n',
            OwnedByAnother,
            "ResourceFlavor v already exists in the cluster c and was not created by a Helm release; nothing was "
            "changed.",
        ),
        (
            'Error: Kubernetes cluster unreachable: Get "http://localhost:8080/version": dial tcp 127.0.0.1:8080: '
            "connect: connection refused\n",
            HelmError,
            "The API server of the cluster c does not answer: connection refused.",
        ),
        (
            'Error: kubernetes cluster unreachable: Get "https://a/version": proxyconnect tcp: tls: failed to verify '
            'certificate: x509: certificate signed by unknown authority (possibly because of "x509: ECDSA verification '
            'failure" while trying to verify candidate authority certificate "a")\n',
            HelmError,
            "The API server of the cluster c does not answer: certificate signed by unknown authority.",
        ),
        (
            'Error: kubernetes cluster unreachable: Get "https://a/version": getting credentials: exec: executable '
            "/a/plugin failed with exit code 3\n",
            HelmError,
            "The credential plugin of the cluster c failed: executable /a/plugin failed with exit code 3.",
        ),
        (
            'Error: kubernetes cluster unreachable: context "foo" does not exist\n',
            HelmError,
            'The kubeconfig has no context "foo".',
        ),
        (
            'Error: UPGRADE FAILED: query: failed to query with labels: secrets is forbidden: User "al" cannot list '
            'resource "secrets" in API group "" in the namespace "ml"\n',
            HelmError,
            "You (al) may not list secrets in the namespace ml of the cluster c. Helm keeps its releases in Secrets.",
        ),
        (
            'Error: unable to build kubernetes objects from release manifest: resource mapping not found for name: "a" '
            'namespace: "" from "": no matches for kind "ClusterQueue" in version "kueue.x-k8s.io/v1beta2"\n',
            HelmError,
            "The cluster c does not serve the kind ClusterQueue of kueue.x-k8s.io/v1beta2: Kueue is not installed "
            "there, or its version is not supported.",
        ),
        (
            'Error: create: failed to create: namespaces "no" not found\n',
            HelmError,
            "There is no namespace no in the cluster c.",
        ),
        (
            "Error: UPGRADE FAILED: release x failed, and has been rolled back due to atomic being set: cannot patch "
            '"a" with kind LocalQueue: admission webhook "v.kueue" denied the request: it is immutable\n',
            HelmError,
            "Helm failed: it is immutable (from the admission webhook v.kueue).",
        ),
        (
            "Error: UPGRADE FAILED: an error occurred while rolling back the release. original upgrade error: "
            "server-side apply failed for object one/one kueue.x-k8s.io/v1beta2, Kind=LocalQueue: "
            "localqueues.kueue.x-k8s.io \"one\" is forbidden: ValidatingAdmissionPolicy 'nope' with binding 'nope' "
            "denied request: not today && server-side apply failed for object two/two\n",
            HelmError,
            'Helm failed: localqueues.kueue.x-k8s.io "one": not today (from the policy nope).',
        ),
        (
            "Error: release name is invalid: x\n",
            HelmError,
            '"x" is not a valid release name; use at most 53 lowercase letters, digits and hyphens.',
        ),
        ("Error: something else\n", HelmError, "Helm failed: something else."),
        ("", HelmError, "Helm failed: it printed no reason."),
    ],
)
def test_sentences(printed: str, kind: type[HelmError], message: str) -> None:
    error = from_stderr(printed, where="the cluster c", release="x")
    assert (type(error), error.message) == (kind, message)


def test_a_forbidden_request_has_a_role() -> None:
    printed = (
        'Error: secrets is forbidden: User "al" cannot list resource "secrets" in API group "" in the namespace "ml"'
    )
    assert "kind: Role\n" in from_stderr(printed).hint
    assert "resources: [secrets]" in from_stderr(printed).hint


def test_the_release_that_may_be_meant() -> None:
    error = errors.unowned("LocalQueue", "a", "ml", "the cluster c", "queues", "platform", "queues")
    assert "-n platform" in error.hint
