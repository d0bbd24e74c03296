"""A container's security context (Kubernetes' words) in runc's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# What containerd leaves a container that drops nothing (its documentation names the same set as Docker's).
_USUAL_CAPABILITIES = (
    *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
    *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"),
    "CAP_SYS_CHROOT",
)

# RuntimeDefault is the runtime's own profile. Its documentation ("Significant syscalls blocked by the default
# profile", Docker's page on seccomp, which containerd's follows) says what it refuses and why; here these are refused
# and everything else is allowed, where the profile also refuses calls that no list names. Not in the list are those
# that it refuses in part (personality) or on old kernels only (ptrace, process_vm_readv), and those of 32 bits.
_REFUSED = (
    # the kernel's modules, its keys, its clock, its tracing; another kernel, another root, swap, mounts
    *("acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module", "finit_module"),
    *("get_kernel_syms", "get_mempolicy", "init_module", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load"),
    *("keyctl", "lookup_dcookie", "mbind", "mount", "move_pages", "nfsservctl", "open_by_handle_at"),
    *("perf_event_open", "pivot_root", "query_module", "quotactl", "reboot", "request_key", "set_mempolicy", "setns"),
    *("settimeofday", "swapoff", "swapon", "_sysctl", "sysfs", "umount2", "unshare", "uselib", "userfaultfd", "ustat"),
    # taken out of the profiles in 2023, for the kernel's bugs in it
    *("io_uring_enter", "io_uring_register", "io_uring_setup"),
)
_EPERM, _ENOSYS = 1, 38
# clone with any of these makes a namespace: cgroup, uts, ipc, user, pid, net, mount.
_NAMESPACE_FLAGS = (0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x00020000)


def runtime_default() -> dict[str, Any]:
    """The seccomp profile RuntimeDefault, in its effect."""
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [
            {"names": list(_REFUSED), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
            # Its flags are behind a pointer that seccomp cannot follow; told that there is none, programs use clone.
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
    """How a container is confined."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: tuple[str, ...]
    no_new_privileges: bool
    read_only_root: bool
    seccomp: dict[str, Any] | None


def security_of(pod: dict[str, Any], container: dict[str, Any], image_user: str) -> Security:
    """What a pod's and a container's security contexts say; the container's own wins.

    Raises AssertionError for what a kubelet would refuse, and for what cannot be had here.
    """
    of_pod: dict[str, Any] = pod.get("securityContext") or {}
    own: dict[str, Any] = container.get("securityContext") or {}
    both = {**of_pod, **own}
    assert not both.get("privileged"), "privileged containers are not for this harness"
    assert not pod.get("hostNetwork"), "nor is the machine's own network"
    user, _, group = image_user.partition(":")
    uid = int(both.get("runAsUser", user or 0))
    assert uid or not both.get("runAsNonRoot"), "the kubelet refuses root where runAsNonRoot is set"
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
