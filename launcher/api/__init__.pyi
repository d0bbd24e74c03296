# The functions and their modules; __init__.py reads this file, so that it imports a module when it is used first.
from collections.abc import Mapping
from typing import Any

from launcher.api._backend import backend_for as backend_for
from launcher.api.alternatives import Alternatives as Alternatives
from launcher.api.alternatives import choose_alternative as choose_alternative
from launcher.api.insight import doctor as doctor
from launcher.api.insight import explain as explain
from launcher.api.measurements import metrics as metrics
from launcher.api.plans import check as check
from launcher.api.plans import plan as plan
from launcher.api.plans import refuse_misfits as refuse_misfits
from launcher.api.plans import values as values
from launcher.api.run_lists import list_runs as list_runs
from launcher.api.run_logs import is_folder as is_folder
from launcher.api.run_logs import logs as logs
from launcher.api.runs import WaitTimeout as WaitTimeout
from launcher.api.runs import cancel as cancel
from launcher.api.runs import delete as delete
from launcher.api.runs import status as status
from launcher.api.runs import wait as wait
from launcher.api.serving import IsServedModel as IsServedModel
from launcher.api.serving import only_runs as only_runs
from launcher.api.serving import run_or_model as run_or_model
from launcher.api.submission import preview as preview
from launcher.api.submission import submit as submit
from launcher.api.values_files import init as init
from launcher.backends.lookup import IsSweep as IsSweep
from launcher.backends.lookup import NoSuchRun as NoSuchRun
from launcher.backends.lookup import backends as backends
from launcher.backends.lookup import find as find
from launcher.backends.lookup import resolve as resolve
from launcher.backends.selection import RunFilter as RunFilter
from launcher.backends.selection import select as select
from launcher.config.presets import presets as presets
from launcher.config.values.defaults import default_files as default_files
from launcher.helm.diff import diff_run as diff_run
from launcher.helm.render import render as render
from launcher.releases.install import install as install
from launcher.releases.install import plan_release as plan_release
from launcher.releases.offline import check_release as check_release
from launcher.releases.offline import render_release as render_release
from launcher.releases.removal import plan_removal as plan_removal
from launcher.releases.removal import uninstall as uninstall

HOMES: Mapping[str, str]

def __getattr__(name: str) -> Any: ...
def __dir__() -> list[str]: ...
