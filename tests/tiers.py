"""Defines the tiers of the tests: the files of each, the tests that `make test` runs, and those that share a process.

    make test        the quick tiers, and the SMOKE tests of the others
    make test-all    every tier but image, browser and e2e, which need more than Python, Go, make and git
    .ci/run          every tier but e2e, without the tests in LONG

The jobs of .github/workflows/ci.yaml run every tier but e2e, with the tests in LONG, on several machines at once.
tests/conftest.py marks each test with its tier, the tests that `make test` runs with `quick`, and those in LONG with
`long`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tier:
    """Tests of one kind. `files` is a pattern of their paths. A file belongs to the first tier that matches.

    The tiers start in the order of TIERS. The two large groups come before the many small files, which then fill the
    end of both processes.

    quick: `make test` runs all tests of the tier. group: the tests of one group run one after the other in one process,
    because they share fixtures that start slowly; with "", the tests of each file are a separate group.
    """

    name: str
    about: str
    files: str
    quick: bool = False
    group: str = ""


TIERS = (
    Tier("e2e", "on your cluster with Kueue, JobSet and KubeRay (make e2e)", r"tests/e2e/", group="e2e"),
    # Containers and trainings do not run at the same time: two cores are not enough for both, and tests time out.
    Tier("image", "the image, built and run in containers; as root, with buildah", r"tests/image/", group="training"),
    Tier(
        "training",
        "whole runs of the trainer, with and without Ray; kills and resumes",
        r"tests/(trainer/test_(training|alerts|serving|replica_logs|without_ray|stop_signals|ray_job|ray_cluster|storage|kept_output|tuning|lora|preferences|mixture|weights|weights_killed|weights_memory)"
        r"|cli/test_training|products/drill/test_(drill|guards))\.py",
        group="training",
    ),
    Tier(
        "cluster",
        "the launcher in front of a real control plane",
        r"tests/((products/\w+/)?cluster/|charts/test_queues_live\.py)",
        group="cluster",
    ),
    Tier(
        "compiler",
        "the TPU compiler, in the child of a forecast",
        r"tests/(trainer/test_aot\w*\.py|products/planner/(cli/test_forecast\.py::test_a_real_forecast|test_presets_tuned))",
    ),
    Tier(
        "harness",
        "the tools of these tests",
        r"tests/(tools/|prose/|workflows/test_machine|unit/test_(e2e_|tiers|compiled_programs))",
    ),
    Tier("browser", "reports in Chromium (make test-browser)", r"tests/browser/", group="browser"),
    # These tests also train, so they start after the containers.
    Tier(
        "pages",
        "the commands that pages and the notebook show, run as shown",
        r"tests/(docs/test_local_pages|test_notebook)\.py",
        group="pages",
    ),
    Tier("cli", "the launcher as a user types it", r"tests/(products/\w+/)?cli/", quick=True),
    Tier("charts", "the charts, rendered by Helm and checked against the CRDs", r"tests/charts/", quick=True),
    Tier("unit", "functions, tables, pages, the wheel", r"tests/", quick=True),
)

# Files of one tier that share a process, as the tests of a group do.
TOGETHER = {
    # Helm renders all presets for them, once (tests/charts/presets.py).
    "presets": r"tests/charts/test_(goldens|presets|pod_security|scan)\.py",
}

# Tests of slow tiers that `make test` also runs: node ids. An id without parameters includes all parameters.
SMOKE = frozenset(
    {
        # Without Ray: stopped, resumed, equal bit for bit.
        "tests/trainer/test_without_ray.py::test_fewer_steps_are_rejected_and_more_steps_resume_from_the_last_checkpoint",
        "tests/trainer/test_without_ray.py::test_a_checkpoint_is_listed_exported_and_imported",
        "tests/products/planner/cli/test_forecast.py::test_a_real_forecast",
        "tests/cluster/test_submit.py::test_a_submit_makes_one_object_with_all_that_it_needs",
        "tests/cluster/test_states.py::test_another_machine_follows_a_run_by_the_kubeconfig_alone",
        "tests/cluster/test_explain.py::test_text_has_a_headline_evidence_and_suggestions",
        "tests/cluster/test_run_policy_attacks.py::test_a_member_cannot_create[S1 RayJob]",
        "tests/cluster/test_cancel.py::test_a_cancelled_run_holds_nothing_and_can_resume[running]",
        "tests/products/models/cluster/test_inference.py::test_a_job_in_the_storage_generates_the_text",
        "tests/cluster/test_install.py::test_queues_that_work_and_queues_that_do_not",
        "tests/products/planner/cluster/test_simulate.py::test_when_a_run_starts_and_what_it_waits_for",
        "tests/docs/test_local_pages.py::test_the_first_screen_shows_the_two_commands",
        "tests/docs/test_local_pages.py::test_make_test_is_this_very_suite",
    }
)

# Tests of quick tiers that only `make test-all` runs.
SLOW = frozenset(
    {
        "tests/charts/test_bad_values.py::test_any_value_at_any_key_renders_a_valid_object_or_both_reject_it",
        "tests/charts/test_bad_values.py::test_what_the_launcher_accepts_renders_one_valid_object_with_its_run_config",
        # test_helm_rejects_it_with_one_sentence_that_names_the_key has one invalid value of each key.
        "tests/charts/test_bad_values.py::test_helm_rejects_other_values_of_the_key",
        # test_goldens.py compares what Helm 4 renders.
        "tests/charts/test_presets.py::test_both_helms_render_the_same",
        # promtool and the reader of Grafana's schema are built for them.
        "tests/charts/test_alerts.py::test_chip_hours_are_recorded_by_team_and_flavor",
        "tests/charts/test_alerts.py::test_every_alert_fires_on_what_it_should_and_only_on_that",
        "tests/charts/test_alerts.py::test_grafanas_schema_accepts_every_dashboard",
        "tests/charts/test_alerts.py::test_the_bounds_are_those_of_the_values",
        "tests/charts/test_pod_security.py",
        # helm lint for each row of the rules; another test renders them.
        "tests/charts/test_queues_rules.py::test_lint_renders_all_manifests_of_invalid_values",
        "tests/charts/test_scan.py",
        # Reads 20 MB of YAML, if the original files are here.
        "tests/charts/test_upstream.py::test_the_tables_agree_with_the_original_files",
        "tests/charts/test_values_helm.py::test_helm_reads_back_the_tree_that_dumps_wrote",
        "tests/charts/test_values_helm.py::test_random_text_is_read_alike_or_rejected_by_both",
        # Ten seconds each; shorter tests of the same files remain.
        "tests/cli/test_runs.py::test_a_slow_start_of_ray_is_not_a_restart",
        "tests/cli/test_runs.py::test_a_crash_that_repeats_is_restarted_once",
        "tests/products/models/cli/test_generate.py::test_results_are_a_table_and_in_the_folder_of_the_run",
        "tests/products/models/cli/test_serve.py::test_a_model_is_served_until_ctrl_c",
        "tests/products/models/cli/test_generate.py::test_the_prompt_comes_from_stdin",
        "tests/products/models/cli/test_generate.py::test_a_checkpoint_that_was_exported_is_used_again",
        # test_chat.py::test_a_conversation remains.
        "tests/products/models/cli/test_serve.py::test_a_model_with_a_chat_template_remembers_the_conversation",
        "tests/products/models/cli/test_chat.py::test_a_server_that_ends_ends_the_conversation",
        # They need more than Python, Go, make and git: a shell, root, a namespace, gcloud.
        "tests/cli/test_bad_input.py::test_a_full_disk",
        "tests/cli/test_bad_input.py::test_a_full_disk_and_a_run_to_resume",
        "tests/cli/test_bad_input.py::test_a_run_that_fills_its_disk_reports_how_it_ended",
        "tests/cli/test_completion.py::test_in_a_real_shell[zsh]",
        "tests/cli/test_completion.py::test_in_fish",
        "tests/cli/test_private_runs.py::test_a_folder_of_other_files_or_of_another_user_is_left_alone",
        "tests/cli/test_private_runs.py::test_another_user_reads_nothing_of_a_run",
        "tests/products/gke/gcloud/test_recorded.py::test_the_mistakes_of_the_tutorial",
        "tests/products/gke/gcloud/test_recorded.py::test_the_real_gcloud_sends_what_is_recorded",
        "tests/products/ray_cluster/test_dashboard.py::test_another_user_of_this_machine_is_refused_even_with_the_token",
        "tests/products/ray_cluster/test_dashboard.py::test_another_user_who_closes_the_socket_is_refused_even_with_the_token",
        "tests/unit/test_stop_signal.py::test_a_containers_first_process_ends_while_it_starts",
        "tests/products/report/cli/test_report_bucket.py::test_a_bucket_that_does_not_answer",
        "tests/products/sweeps/cli/test_sweep.py::test_a_terminal_shows_a_table_of_the_runs",
        "tests/products/sweeps/cli/test_sweep.py::test_killed_supervisors_do_not_delay_the_other_runs",
        "tests/fuzz/test_fuzz.py::test_random_cases",
        "tests/products/gke/test_terraform_scan.py",
        "tests/trainer/test_weights_tables.py::test_the_exported_tokenizer_returns_the_ids_of_the_training",
        "tests/trainer/test_step_check.py::test_maxtext_refuses_combinations_of_keys_with_the_key",
        "tests/trainer/test_evaluate.py::test_a_task_that_cannot_work[unknown]",  # reads all tasks of lm-eval
        # Starts kubectl and both Helms for each row; the launcher is compared with the same table in make test.
        "tests/unit/test_address_book.py::test_kubectl",
        "tests/unit/test_address_book.py::test_files_of_kubectl",
        "tests/unit/test_address_book.py::test_helm",
        # test_the_core_works_without_products imports the core in a copy without products.
        "tests/plugins/test_plugins.py::test_the_core_works_without_a_product",
        "tests/plugins/test_plugins.py::test_the_tests_of_the_core_pass_without_products",
        # MaxText traces each step, and imports all of its modules.
        "tests/products/tuning/test_adapter_rules.py::test_adapters_are_accepted[method=qlora]",
        "tests/products/tuning/test_adapter_rules.py::test_adapters_are_accepted[method=dpo]",
        "tests/unit/test_deferred_imports.py",
        "tests/trainer/test_rehearsal.py",
        "tests/trainer/test_tracing.py",
        # The commands of the wheel that need no trainer run in make test.
        "tests/test_wheel.py::test_the_trainer_of_the_wheel_checks_a_run",
        # All jobs of the workflows, in a shell.
        "tests/workflows/test_workflows.py",
        # All pairs of a model and a slice; test_goldens.py renders every preset.
        "tests/unit/test_presets_models.py::test_the_launcher_accepts_a_model_if_the_slice_divides_it",
        # Other tests of the file search, too.
        "tests/products/planner/test_forecast_search.py::test_nothing_is_faster",
        "tests/products/planner/test_forecast_search.py::test_nothing_is_compiled_twice",
        "tests/products/planner/test_forecast_search.py::test_a_full_host_does_not_exclude_configs_without_offloading",
        # test_random_combinations_are_those_of_the_chart changes the same keys.
        "tests/products/planner/test_simulation_advice.py::test_changed_objects_are_those_of_the_chart",
        # MaxText itself, for each preset and model; they change when MaxText does.
        "tests/unit/test_model_table.py",
        "tests/unit/test_presets_models.py::test_maxtext_accepts_every_model_with_a_slice",
        "tests/trainer/test_telemetry.py::test_a_real_prometheus_accepts_every_metric",
    }
)

# Tests that `.ci/run`, which has one machine with two cores and 90 minutes, leaves to the workflow's jobs. A comment
# names the shorter tests of the same, if there are any; nothing else tests the rest.
LONG = frozenset(
    {
        # Preempted, drained and stopped in three Ray clusters. test_without_ray.py and cli/test_training.py stop runs.
        "tests/trainer/test_stop_signals.py::test_no_stop_signal_repeats_a_step_or_counts_as_a_failure",
        # Starts Ray for it. tests/unit/test_stop_signal.py stops the driver before and after the first step.
        "tests/trainer/test_stop_signals.py::test_a_local_run_with_nothing_to_save_ends_at_once",
        # test_driver_supervisor.py restarts a driver without Ray; test_training.py kills a worker.
        "tests/trainer/test_ray_job.py::test_a_killed_driver_restarts_in_the_same_job",
        "tests/trainer/test_ray_job.py::test_the_loss_of_a_draining_host_is_not_a_failure_of_the_other",
        "tests/trainer/test_ray_job.py::test_a_lost_host_is_a_failure_and_the_last_one_fails_the_job",
        # The limit of memory, and kills, with gigabytes of weights. test_weights.py converts small ones.
        "tests/trainer/test_weights_memory.py",
        "tests/trainer/test_weights_killed.py",
        # A JobSet's pods, as root.
        "tests/image/test_jobset_containers.py",
        # Makes a Debian with PyTorch, which takes minutes. test_lora.py compares with mlx-lm.
        "tests/image/test_peft.py",
        # Two clusters of containers. test_build.py starts the image, and test_without_ray.py has the kills of a JobSet.
        "tests/image/test_ray_containers.py",
        # Ray Serve. test_a_trained_model_is_served_on_this_machine has the same server without it.
        "tests/trainer/test_serving.py::test_an_answer_has_the_most_likely_tokens",
        "tests/trainer/test_serving.py::test_the_numbers_of_tokens",
        "tests/trainer/test_serving.py::test_a_stop_text_ends_an_answer",
        "tests/trainer/test_serving.py::test_a_seed_repeats_an_answer",
        "tests/trainer/test_serving.py::test_what_is_refused",
        "tests/trainer/test_serving.py::test_fifty_clients_at_once",
        "tests/trainer/test_serving.py::test_a_killed_replica_fails_only_the_requests_that_it_had",
        "tests/trainer/test_serving.py::test_a_newer_checkpoint_replaces_the_old_one_without_a_failed_request",
        "tests/trainer/test_replica_logs.py",
        # test_generate.py and test_evaluate.py have the commands; these train for the answers.
        "tests/trainer/test_training.py::test_a_trained_model_is_better_at_a_task",
        # Trains, with a Prometheus that reads the metrics. tests/charts/test_alerts.py has the rules and promtool.
        "tests/trainer/test_alerts.py::test_alerts_fire_on_a_real_training",
        # test_alerts.py reads the metrics of a training, and test_without_ray.py changes the data of a run.
        "tests/trainer/test_training.py::test_a_run_serves_its_metrics_on_loopback_and_ends_if_its_text_becomes_unreadable",
        # test_ray_job.py has a config that is rejected, and is not restarted.
        "tests/cli/test_training.py::test_a_config_that_only_maxtext_rejects_is_one_sentence_and_is_not_restarted",
        # test_a_killed_process_of_several_hosts_restarts_in_its_pod also waits for another host.
        "tests/trainer/test_without_ray.py::test_a_host_waits_for_a_slice_that_jobset_creates_again",
        # Trains twice. tests/unit/test_precomputed.py has the table, and its kills.
        "tests/trainer/test_preferences.py::test_a_precomputed_reference_gives_the_same_numbers",
        # The others of these files have an export and an import, and an adapter.
        "tests/trainer/test_weights.py::test_a_trained_model_has_the_held_out_loss_of_the_trainer_and_starts_another_run",
        "tests/trainer/test_lora.py::test_the_text_is_that_of_the_weights_with_the_adapter",
        # test_tuning.py kills a run in an epoch.
        "tests/trainer/test_mixture.py::test_a_kill_changes_no_number",
        "tests/trainer/test_lora.py::test_a_kill_changes_no_number",
        # A model with dense layers is exported, too.
        "tests/trainer/test_lora.py::test_logits_of_the_exports_are_those_of_the_run[mixtral]",
        # Pages with trainings. README.md and the tutorial train, too.
        "tests/docs/test_local_pages.py::test_a_page_shows_what_its_commands_print[docs/how-to/export-a-model.md]",
        "tests/docs/test_local_pages.py::test_a_page_shows_what_its_commands_print[docs/how-to/fine-tune-from-weights.md]",
        "tests/docs/test_local_pages.py::test_a_page_shows_what_its_commands_print[docs/how-to/run-a-sweep.md]",
        "tests/docs/test_local_pages.py::test_a_page_shows_what_its_commands_print[docs/how-to/train-on-your-text.md]",
        "tests/docs/test_local_pages.py::test_a_page_shows_what_its_commands_print[docs/how-to/view-metrics.md]",
        # Minutes of commands. test_served_models.py tests the states of a model.
        "tests/cluster/test_e2e_suite.py::test_a_model_is_served_with_the_fakes",
        # Many commands of gcloud, which takes a second to start. With its stand-in they run in CI, and shorter tests
        # with both.
        "tests/products/gke/cluster/test_gke.py::test_from_an_empty_project_to_nothing[gcloud]",
        # tests/products/gke/test_kueue_config.py has the configuration.
        "tests/products/gke/cluster/test_gke.py::test_kueue_has_its_configuration_and_image",
        # test_from_an_empty_project_to_nothing has the same steps in one order.
        "tests/products/gke/cluster/test_gke.py::test_the_tutorial_from_an_empty_project_to_a_run_and_back",
        "tests/products/gke/cluster/test_gke.py::test_up_that_is_killed_after_every_step_converges",
        # test_clean_removes_what_a_killed_suite_left starts a suite, and looks for what it left.
        "tests/cluster/test_e2e_suite.py::test_two_suites_at_once_pass_and_leave_nothing",
        # Helm 4 runs them in CI. test_install_again_upgrade_and_uninstall has both.
        "tests/cluster/test_install.py::test_a_killed_helm[helm3]",
        "tests/cluster/test_install.py::test_a_refused_change_is_rolled_back[helm3]",
        "tests/cluster/test_install.py::test_a_release_with_the_charts_old_name_is_upgraded[helm3]",
        "tests/cluster/test_install.py::test_fields_of_a_flavor_cannot_change[helm3]",
        "tests/cluster/test_install.py::test_objects_of_another_owner[helm3]",
        # All presets. test_goldens.py renders them, and the other tests of the file have random values.
        "tests/cluster/test_run_policy_honest.py::test_every_values_file_of_the_repository",
        # tests/unit/test_e2e_needs.py has the settings.
        "tests/cluster/test_e2e_suite.py::test_a_missing_setting_is_an_error_only_in_ci",
        # A tenth of a minute for each of its commands. The other pages run.
        "tests/cluster/test_pages.py::test_a_page_shows_the_real_output[docs/how-to/share-a-cluster.md]",
        # test_sweeps.py creates, resumes and deletes a sweep; the other tests of this file run jobs in Ray.
        "tests/products/ray_cluster/cluster/test_ray_cluster_runs.py::test_a_sweep_is_a_job_for_each_combination",
        # test_clean_removes_what_a_killed_suite_left kills it at one moment.
        "tests/cluster/test_e2e_suite.py::test_an_interrupted_suite_cleans_up",
        # Trainings in a long-lived Ray cluster and in the notebook; the other tests of these files train nothing.
        "tests/products/ray_cluster/cluster/test_ray_cluster_runs.py::test_a_training_from_submit_to_the_last_step",
        "tests/test_notebook.py::test_the_notebook_trains_and_plots",
        # The other tests of the file keep the output of a host that is killed, and of a storage that hangs.
        "tests/trainer/test_kept_output.py::test_a_training_ends_with_the_same_numbers_although_its_log_hangs",
        # test_training.py kills a worker, and test_a_run_survives_every_kill all processes of a run with one host.
        "tests/cli/test_training.py::test_a_run_of_two_hosts_survives_kills_of_a_worker_and_of_ray",
        # test_the_output_of_a_host_without_ray_stays_after_a_kill has a run without Ray.
        "tests/trainer/test_kept_output.py::test_the_output_of_a_ray_job_stays_after_a_kill",
        # Five trainings and a chat. test_tuning.py trains the same, and the first part of the tutorial runs in CI.
        "tests/docs/test_local_pages.py::test_a_page_shows_what_its_commands_print[docs/tutorial/4-fine-tune.md]",
        # test_trainer_failures.py has the message, and the rule for the second failure of a kind.
        "tests/trainer/test_training.py::test_too_little_memory_is_restarted_once",
        # test_ray_job.py runs a command on every host.
        "tests/trainer/test_ray_cluster.py::test_a_command_waits_for_one_node_per_host_and_reports_it",
        # The tests of resumes have what the page shows.
        "tests/docs/test_local_pages.py::test_a_page_shows_what_its_commands_print[docs/how-to/resume-a-run.md]",
        # test_lora.py kills a run with pairs and adapters.
        "tests/trainer/test_preferences.py::test_a_kill_changes_no_number",
        # The tasks of lm-eval, 10,000 files; other rows have other mistakes.
        "tests/trainer/test_evaluate.py::test_a_task_that_cannot_work[unknown]",
        # test_goldens.py compares what Helm 4 renders, and each chart is rendered by Helm 3 elsewhere.
        "tests/charts/test_presets.py::test_both_helms_render_the_same",
        "tests/charts/test_queues_rules.py::test_lint_renders_all_manifests_of_invalid_values[helm3]",
        # Other widths are tested, too.
        "tests/browser/test_report_page.py::test_it_is_drawn_from_a_file_without_a_network[1920-light]",
        "tests/browser/test_report_page.py::test_one_run_and_twenty_fit[1920]",
        # Compiles a preset that is fast by an earlier forecast again.
        "tests/products/planner/test_presets_tuned.py::test_the_first_is_as_fast_as_it_says",
        # Three trainings under Ray, two of one host, and one that is interrupted.
        "tests/products/drill/test_drill.py::test_a_killed_worker_and_a_stop_cost_what_the_pages_promise",
        "tests/products/drill/test_drill.py::test_a_storage_that_refuses_costs_what_the_pages_promise",
        "tests/products/drill/test_drill.py::test_ctrl_c_leaves_nothing",
        # Trainings of the fakes in a cluster of their own. The other tests of this file create nothing.
        "tests/products/drill/cluster/test_cluster_drill.py::test_a_drill_passes_and_leaves_nothing",
        "tests/products/drill/cluster/test_cluster_drill.py::test_a_drill_fails_if_the_command_does_not_try_again",
        "tests/products/drill/cluster/test_cluster_drill.py::test_an_interrupted_drill_leaves_nothing",
        # A training for each guard. test_certificate.py has the judgement of a drill.
        "tests/products/drill/test_guards.py::test_a_drill_fails_without_the_guard",
        # MaxText itself, for each preset and model. They change with its version, whose update runs the workflow.
        "tests/unit/test_model_table.py",
        "tests/unit/test_presets_models.py::test_maxtext_accepts_every_model_with_a_slice",
        "tests/trainer/test_step_check.py::test_maxtext_refuses_combinations_of_keys_with_the_key",
        # The scanners and formats of others.
        "tests/charts/test_scan.py",
        "tests/products/gke/test_terraform_scan.py",
        "tests/trainer/test_weights_tables.py::test_the_exported_tokenizer_returns_the_ids_of_the_training",
    }
)


def tier_of(nodeid: str) -> Tier:
    """Return the tier of a test or of a test file. The path is relative to the checkout."""
    return next(tier for tier in TIERS if re.match(tier.files, nodeid))


def group_of(nodeid: str) -> str:
    """Return the group of a test, whose tests run one after the other in one process."""
    together = [group for group, files in TOGETHER.items() if re.match(files, nodeid)]
    return next(iter(together), tier_of(nodeid).group or nodeid.partition("::")[0])


def start_order(nodeid: str) -> int:
    """Return a sort key: the position of the test's tier in TIERS."""
    return TIERS.index(tier_of(nodeid))


def is_quick(nodeid: str) -> bool:
    """Return whether `make test` runs the test."""
    names = _names(nodeid)
    if not tier_of(nodeid).quick:
        return not SMOKE.isdisjoint(names)
    # Helm 3 rarely differs from Helm 4. Tests with a table of rows run both in one test.
    parameters = nodeid.partition("[")[2].removesuffix("]").split("-")
    return SLOW.isdisjoint(names) and "helm3" not in parameters


def is_long(nodeid: str) -> bool:
    """Return whether `.ci/run` leaves the test to the workflow."""
    return not LONG.isdisjoint(_names(nodeid))


def _names(nodeid: str) -> tuple[str, str, str]:
    """Return the test, the test without its parameters, and its file."""
    return nodeid, nodeid.partition("[")[0], nodeid.partition("::")[0]


def missing(collected: Iterable[str]) -> list[str]:
    """Return the names in SMOKE, SLOW and LONG without a test, although tests of their files were collected."""
    names = set(collected)
    names |= {nodeid.partition("[")[0] for nodeid in names}
    files = {nodeid.partition("::")[0] for nodeid in names}
    listed = SMOKE | SLOW | LONG
    return sorted(name for name in listed if name.partition("::")[0] in files and name not in names | files)


def summary(seconds: Iterable[tuple[str, float]]) -> list[str]:
    """Return a table of the tiers from the seconds of each phase of each test, by node id."""
    tests: dict[str, set[str]] = {}
    total: defaultdict[str, float] = defaultdict(float)
    for nodeid, each in seconds:
        name = tier_of(nodeid).name
        tests.setdefault(name, set()).add(nodeid)
        total[name] += each
    slowest_first = sorted(total.items(), key=lambda item: -item[1])
    return [f"{name:<10}{len(tests[name]):>6} tests{spent:>8.0f} s" for name, spent in slowest_first]
