"""Converts a container's security context of Kubernetes to runc's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The capabilities that containerd gives a container that drops none (by its documentation, the same as Docker's).
_USUAL_CAPABILITIES = (
    *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
    *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"),
    "CAP_SYS_CHROOT",
)

# RuntimeDefault is the runtime's own profile. Its documentation ("Significant syscalls blocked by the default profile"
# on Docker's page on seccomp, which containerd's profile follows) lists what it rejects and why. Here these calls are
# rejected and all others are allowed; the profile also rejects calls that no list has. The list leaves out calls that
# are rejected only in part (personality) or only on old kernels (ptrace, process_vm_readv), and calls of 32 bits.
_REFUSED = (
    # modules, keys, clock and tracing of the kernel; another kernel, another root, swap, mounts
    *("acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module", "finit_module"),
    *("get_kernel_syms", "get_mempolicy", "init_module", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load"),
    *("keyctl", "lookup_dcookie", "mbind", "mount", "move_pages", "nfsservctl", "open_by_handle_at"),
    *("perf_event_open", "pivot_root", "query_module", "quotactl", "reboot", "request_key", "set_mempolicy", "setns"),
    *("settimeofday", "swapoff", "swapon", "_sysctl", "sysfs", "umount2", "unshare", "uselib", "userfaultfd", "ustat"),
    # removed from the profiles in 2023 because of kernel bugs
    *("io_uring_enter", "io_uring_register", "io_uring_setup"),
)
_EPERM, _ENOSYS = 1, 38
# clone with any of these flags creates a namespace: cgroup, uts, ipc, user, pid, net, mount.
_NAMESPACE_FLAGS = (0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x00020000)


def runtime_default() -> dict[str, Any]:
    """A seccomp profile with the effect of RuntimeDefault."""
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [
            {"names": list(_REFUSED), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
            # seccomp cannot read the flags of clone3, which are behind a pointer. After ENOSYS, programs use clone.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
            *(
                {
                    "names": ["clone"],
                    "action": "SCMP_ACT_ERRNO",
                    "errnoRet": _EPERM,
                    "args": [{"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}],
                }
                for flag in _NAMESPACE_FLAGS
            ),
        ],
    }


@dataclass(frozen=True)
class Security:
    """The security settings of a container."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: tuple[str, ...]
    no_new_privileges: bool
    read_only_root: bool
    seccomp: dict[str, Any] | None


def security_of(pod: dict[str, Any], container: dict[str, Any], image_user: str) -> Security:
    """The settings of a pod's and a container's security contexts; the container's override the pod's.

    Raises AssertionError for settings that a kubelet would reject, and for settings that this harness does not support.
    """
    of_pod: dict[str, Any] = pod.get("securityContext") or {}
    own: dict[str, Any] = container.get("securityContext") or {}
    both = {**of_pod, **own}
    assert not both.get("privileged"), "this harness does not support privileged containers"
    assert not pod.get("hostNetwork"), "this harness does not support hostNetwork"
    user, _, group = image_user.partition(":")
    uid = int(both.get("runAsUser", user or 0))
    assert uid or not both.get("runAsNonRoot"), "the kubelet rejects root if runAsNonRoot is set"
    gid = int(both.get("runAsGroup", group or 0))
    kind = (both.get("seccompProfile") or {"type": "Unconfined"})["type"]
    assert kind in ("RuntimeDefault", "Unconfined"), kind
    asked = own.get("capabilities") or {}
    dropped = {f"CAP_{name}" for name in asked.get("drop", [])}
    kept = () if "CAP_ALL" in dropped else tuple(name for name in _USUAL_CAPABILITIES if name not in dropped)
    added = tuple(f"CAP_{name}" for name in asked.get("add", []))
    return Security(
        uid=uid,
        gid=gid,
        groups=(int(of_pod["fsGroup"]),) if of_pod.get("fsGroup") is not None else (),
        capabilities=tuple(dict.fromkeys((*kept, *added))),
        no_new_privileges=own.get("allowPrivilegeEscalation") is False,
        read_only_root=bool(own.get("readOnlyRootFilesystem")),
        seccomp=runtime_default() if kind == "RuntimeDefault" else None,
    )
