"""The programs whose business is to run another one, and how their own words are told from it.

What is not here and not known to run nothing is guessed at (guesses.py).
"""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.permissions.options import Options, options
from mcode_exec.permissions.vocabulary import names


class Wrapper(Struct, frozen=True):
    """How a wrapper's own words are told from the command it runs."""

    known: Options
    #: words of its own that come before the command
    operands: int = 0
    #: the wrapper itself must be allowed as well
    is_judged: bool = False
    #: without a command it runs a shell, which reads its standard input
    is_shell: bool = False
    #: options with which it writes a file of its own, so that it must be allowed as well
    writing: frozenset[str] = frozenset()


def _wrapper(
    flags: str = "",
    valued: str = "",
    glued: str = "",
    operands: int = 0,
    *,
    is_judged: bool = False,
    is_shell: bool = False,
    writing: str = "",
) -> Wrapper:
    return Wrapper(options(flags, valued, glued), operands, is_judged, is_shell, names(writing))


#: setarch, and each architecture as a program or as its first operand
_PERSONALITY = _wrapper(
    "vRFZLXB3IST verbose addr-no-randomize fdpic-funcptrs mmap-page-zero addr-compat-layout read-implies-exec "
    "32bit short-inode whole-seconds sticky-timeouts 3gb 4gb uname-2.6 list show",
    " pid",
    is_judged=True,
    is_shell=True,
)

WRAPPERS: dict[str, Wrapper] = {
    "env": Wrapper(
        options(
            "i0v ignore-environment null debug list-signal-handling help version block-signal default-signal "
            "ignore-signal",
            "uCSa unset chdir split-string argv0",
            ending="S split-string",
            lone_dash=True,
        )
    ),
    "sudo": _wrapper(
        "AbBEeHiKklNnPSsVv askpass background bell edit set-home login remove-timestamp reset-timestamp list "
        "no-update non-interactive preserve-groups preserve-env stdin shell validate version help",
        "ugpCrtTUDRac user group host prompt close-from role type command-timeout other-user chdir chroot "
        "auth-type login-class",
        is_judged=True,
    ),
    "doas": _wrapper("Lns", "aCu", is_judged=True),
    "pkexec": _wrapper(" disable-internal-agent keep-cwd version help", "u user", is_judged=True),
    "run0": _wrapper(
        " pipe pty no-ask-password help version",
        "uDg user group property description slice unit chdir nice setenv background machine",
        is_judged=True,
    ),
    "command": _wrapper("pVv"),
    "builtin": _wrapper(),
    "exec": _wrapper("cl", "a"),
    "nohup": _wrapper(),
    "nice": _wrapper("", "n adjustment"),
    "ionice": _wrapper("t ignore", "cnpPu class classdata pid pgid uid"),
    "chrt": _wrapper(
        "abdefiGmorRv all-tasks max verbose batch deadline ext fifo idle other rr reset-on-fork",
        "TPDp sched-runtime sched-period sched-deadline pid",
        operands=1,
    ),
    "taskset": _wrapper("ac all-tasks cpu-list", "p pid", operands=1),
    "time": _wrapper("apqvV append portability quiet verbose", "fo format output", writing="-o --output"),
    "timeout": _wrapper("fpv foreground preserve-status verbose", "ks kill-after signal", operands=1),
    "stdbuf": _wrapper("", "ioe input output error"),
    "setsid": _wrapper("cfw ctty fork wait"),
    "unbuffer": _wrapper("p"),
    "chronic": _wrapper("ve"),
    "caffeinate": _wrapper("dimsu", "tw"),
    "xargs": _wrapper(
        "0oprtx null interactive no-run-if-empty open-tty verbose exit show-limits replace max-lines eof",
        "adEIJLnPRsS arg-file delimiter max-args max-procs max-chars process-slot-var",
        "eil",
    ),
    "parallel": _wrapper(
        "0kqtuvVX null keep-order quote verbose ungroup group line-buffer lb linebuffer tag dry-run dryrun bar "
        "eta progress pipe will-cite fg bg shuf xargs no-run-if-empty files resume resume-failed semaphore",
        "jaNnLISsC jobs max-procs arg-file joblog results max-args max-replace-args max-lines colsep delay "
        "timeout sshlogin tmpdir retries halt load memfree nice workdir wd env tagstring block recstart recend "
        "arg-sep arg-file-sep id",
        writing="--joblog --results --tmpdir",
    ),
    "strace": _wrapper(
        "cCdDfFhiknqrtTvVwxyYzZ follow-forks output-separately summary-only summary no-abbrev",
        "abeEIoOpPsSuUX output trace expr env user attach string-limit signal status inject fault columns",
        is_judged=True,
    ),
    "ltrace": _wrapper("bcCfhiLrStTV", "aADeFlnopsuwxX", is_judged=True),
    "chroot": _wrapper(" skip-chdir", " userspec groups", operands=1, is_judged=True, is_shell=True),
    "unshare": _wrapper(
        "imnpuUfrcCT fork map-root-user map-current-user map-auto keep-caps mount uts ipc net pid user cgroup "
        "time mount-proc kill-child",
        "RwSGl root wd setuid setgid map-user map-group map-users map-groups propagation setgroups boottime "
        "monotonic load-interp",
        is_judged=True,
        is_shell=True,
    ),
    "nsenter": _wrapper(
        "aFZce all no-fork follow-context preserve-credentials keep-caps env join-cgroup user-parent mount uts "
        "ipc net pid user cgroup time root wd",
        "tSGNW target setuid setgid wdns net-socket",
        "muinpCUTrw",
        is_judged=True,
        is_shell=True,
    ),
    "setpriv": _wrapper(
        "d dump clear-groups keep-groups init-groups no-new-privs nnp reset-env list-caps",
        " reuid regid ruid rgid euid egid groups ambient-caps inh-caps bounding-set securebits pdeathsig ptracer "
        "selinux-label apparmor-profile landlock-access landlock-rule seccomp-filter",
        is_judged=True,
    ),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "coproc": _wrapper(),
    "!": _wrapper(),
    "systemd-run": _wrapper(
        "rSGdtPqTv scope user system remain-after-exit send-sighup no-block wait pty pipe quiet shell collect "
        "same-dir ask-password no-ask-password expand-environment verbose",
        "HMupEI unit property description slice host machine service-type uid gid nice working-directory setenv "
        "on-active on-boot on-startup on-unit-active on-unit-inactive on-calendar path-property socket-property "
        "timer-property background",
        is_judged=True,
    ),
    "fakeroot": _wrapper("uhv unknown-is-real", "lfsib lib faked", is_judged=True, is_shell=True),
    **dict.fromkeys(
        names("setarch linux32 linux64 i386 i486 i586 i686 x86_64 uname26 arm armv8l aarch64"), _PERSONALITY
    ),
    "prlimit": _wrapper(
        " noheadings raw verbose core data nice fsize memlock nofile rss rtprio rttime sigpending msgqueue nproc "
        "stack cpu as locks",
        "po pid output",
        "cdefilmnqrstuvxyA",
        is_judged=True,
    ),
    "choom": _wrapper("", "np adjust pid", is_judged=True),
    "dbus-run-session": _wrapper("", " config-file dbus-daemon", is_judged=True),
    "catchsegv": _wrapper(is_judged=True),
}
