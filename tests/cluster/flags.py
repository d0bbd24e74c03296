"""The command-line flags of the control plane's processes."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.certificates import Authority

STAGES = Path(__file__).with_name("kwok-stages.yaml")
# Tests create hundreds of objects. The default limits are for shared clusters.
CLIENT = ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000"]


def etcd(data: Path, client: str, peer: str) -> list[str]:
    """data: its folder; client, peer: the URLs on which it listens."""
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # the data need not survive a crash of this machine
        "--log-level=warn",
    ]


def api_server(pki: Authority, account_keys: tuple[Path, Path], etcd: str, port: int) -> list[str]:
    """account_keys: the public and the private key of service accounts' tokens; etcd: its URL."""
    certificate, key = pki.issue("kube-apiserver", hosts=("127.0.0.1", "localhost", "10.96.0.1"))
    front = pki.issue("front-proxy-client")
    kubelet_client = pki.issue("kube-apiserver-kubelet-client", ("system:masters",))
    public, private = account_keys
    authority = pki.certificate
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        # No client uses the Service `kubernetes` for the API server.
        "--endpoint-reconciler-type=none",
        "--advertise-address=127.0.0.1",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={authority}",
        f"--service-account-key-file={public}",
        f"--service-account-signing-key-file={private}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        # It taints new nodes until the node lifecycle controller removes the taint, and that controller is off.
        "--disable-admission-plugins=TaintNodesByCondition",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={kubelet_client[0]}",
        f"--kubelet-client-key={kubelet_client[1]}",
        "--kubelet-preferred-address-types=InternalIP",
        # Services are reached by their endpoints, because there is no kube-proxy for cluster IPs.
        "--enable-aggregator-routing=true",
        f"--requestheader-client-ca-file={authority}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={front[0]}",
        f"--proxy-client-key-file={front[1]}",
    ]


def controller_manager(kubeconfig: Path, pki: Authority, account_keys: tuple[Path, Path]) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={pki.certificate}",
        f"--service-account-private-key-file={account_keys[1]}",
        "--use-service-account-credentials",
        # Simulated nodes send no heartbeats, to save work for up to 1,300 nodes, so no controller may expect them.
        "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller",
        *CLIENT,
    ]


def scheduler(kubeconfig: Path) -> list[str]:
    return [f"--kubeconfig={kubeconfig}", *CLIENT]


def kwok(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=0",
        "--cidr=10.244.0.0/16",
        "--node-ip=127.0.0.1",
        f"--config={STAGES}",
    ]
