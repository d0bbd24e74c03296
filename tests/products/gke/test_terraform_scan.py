"""An independent scanner, checkov, finds nothing in Terraform's JSON, except what is accepted here with a reason.

checkov reads no comments in JSON, so the document itself cannot name the accepted checks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from launcher.products.gke import terraform
from tests.charts.scan import Accepted, Finding, checkov
from tests.products.gke.clusters import FILES, plan_of

ADDRESSES = "the user sets gke.network.authorized; by default, a new cluster can be reached from any machine"
NODES = "the user sets gke.network.privateNodes; these nodes then need Cloud NAT (gke.network.nat)"
DATAPLANE = (
    "Autopilot always has Dataplane V2, which enforces NetworkPolicies; the provider rejects network_policy there"
)
FLOWS = "flow logs of the subnetwork, which is the user's, are billed by the traffic, and a training has much of it"
GROUPS = "the domain of gke-security-groups is the organization's; the values have no key for it"
IMAGES = "the policy of Binary Authorization belongs to the project; runs use images of the teams' own builds"
METADATA = "nodes of Autopilot always have the metadata server of GKE, and the cluster has no node_config"
REPAIR = "as with gcloud, flex-start nodes are not repaired: GKE deletes them at the end of their time"
ACCESS_LOG = "access logs need a bucket of their own; audit logs of data access, which a project can have, replace them"
VERSIONS = "buckets with a hierarchical namespace have no versions; soft delete restores deleted objects"
SOFT_DELETE = "trainings replace checkpoints, and each version would be billed; the values decide on soft delete"
KEY = "Google encrypts the images; the values have no key of the user's own"

ACCEPTED = [
    Accepted("checkov", "CKV_GCP_9", "every/pool-*-flex*", REPAIR),
    Accepted("checkov", "CKV_GCP_12", "autopilot/cluster", DATAPLANE),
    Accepted("checkov", "CKV_GCP_20", "[!e]*/cluster", ADDRESSES),
    Accepted("checkov", "CKV_GCP_25", "[!e]*/cluster", NODES),
    Accepted("checkov", "CKV_GCP_61", "*/cluster", FLOWS),
    Accepted("checkov", "CKV_GCP_62", "*/bucket*", ACCESS_LOG),
    Accepted("checkov", "CKV_GCP_64", "[!e]*/cluster", NODES),
    Accepted("checkov", "CKV_GCP_65", "*/cluster", GROUPS),
    Accepted("checkov", "CKV_GCP_66", "*/cluster", IMAGES),
    Accepted("checkov", "CKV_GCP_69", "autopilot/cluster", METADATA),
    Accepted("checkov", "CKV_GCP_78", "[!e]*/bucket-*", VERSIONS),
    Accepted("checkov", "CKV_GCP_78", "every/bucket", SOFT_DELETE),
    Accepted("checkov", "CKV_GCP_84", "*/registry", KEY),
]


def scan(documents: dict[str, Any], folder: Path) -> list[Finding]:
    """Return the findings of documents; the object of each is "document/resource"."""
    for name, document in documents.items():
        (folder / name).mkdir()
        (folder / name / terraform.FILE).write_text(json.dumps(document, indent=2))
    found = set()
    for failed in checkov(folder, "terraform_json"):
        where = f"{failed['file_path'].split('/')[1]}/{failed['resource'].rpartition('.')[2]}"
        found.add(Finding("checkov", failed["check_id"], where, failed["check_name"]))
    return sorted(found)


def test_nothing_is_found_except_what_is_accepted(tmp_path: Path) -> None:
    found = scan({name: terraform.document(plan_of(name)) for name in FILES}, tmp_path)
    assert [finding for finding in found if not any(accepted.covers(finding) for accepted in ACCEPTED)] == []
    stale = [accepted for accepted in ACCEPTED if not any(accepted.covers(finding) for finding in found)]
    assert stale == [], "checkov says this no longer"


def test_checkov_reads_blocks_of_all_resources(tmp_path: Path) -> None:
    document = terraform.document(plan_of("every"))
    resources = document["resource"]
    del resources["google_container_cluster"]["cluster"]["private_cluster_config"]
    del resources["google_container_node_pool"]["system"]["management"]
    resources["google_container_node_pool"]["pool-l4"]["node_config"]["workload_metadata_config"] = {"mode": "GCE"}
    resources["google_storage_bucket"]["bucket"]["public_access_prevention"] = "inherited"
    found = {(finding.check, finding.object) for finding in scan({"bad": document}, tmp_path)}
    assert found >= {
        ("CKV_GCP_25", "bad/cluster"),
        ("CKV_GCP_10", "bad/system"),
        ("CKV_GCP_69", "bad/pool-l4"),
        ("CKV_GCP_114", "bad/bucket"),
    }
