"""The invariants of asynchronous collection, and the tests that hold them."""

from __future__ import annotations

import inspect

import pytest

from tests.agents.rl import test_chunk_training
from tests.agents.rl.algo import test_macro_steps, test_ppo_decoupled
from tests.agents.rl.buffer import test_vla_buffer
from tests.agents.rl.collector import test_chunk_collection
from tests.agents.rl.collector.asynchronous import test_async_collector, test_async_training

MODULES = (
    test_async_collector,
    test_async_training,
    test_chunk_collection,
    test_chunk_training,
    test_macro_steps,
    test_ppo_decoupled,
    test_vla_buffer,
)

INVARIANTS: dict[str, tuple[str, ...]] = {
    "1 every sample's log-probability is reproducible from its tagged version": (
        "test_every_samples_log_prob_is_reproducible_from_its_tagged_version",
        "test_every_chunks_log_prob_is_reproducible_from_its_tagged_version",
    ),
    "2 collector and learner share no parameter storage": (
        "test_collector_and_learner_share_no_parameter_storage",
        "test_published_snapshot_does_not_change_with_the_policy_and_cannot_be_changed",
    ),
    "3 each rollout is consumed once; get on an empty buffer waits, or gives up after its time": (
        "test_each_rollout_is_consumed_once_and_in_order",
        "test_each_rollout_is_consumed_once_and_capacity_is_never_exceeded_and_counts_add_up",
        "test_get_on_an_empty_buffer_waits_for_a_rollout",
        "test_get_on_an_empty_buffer_gives_up_after_its_timeout",
    ),
    "4 the order is kept, the capacity never exceeded": (
        "test_rollouts_come_out_in_the_order_in_which_they_went_in",
        "test_each_rollout_is_consumed_once_and_capacity_is_never_exceeded_and_counts_add_up",
        "test_add_to_a_full_buffer_waits_for_room",
    ),
    "5 the lag at consumption is at most max_staleness, after a resume too": (
        "test_version_lag_at_consumption_is_bounded_also_after_a_restart_and_a_resume",
        "test_bound_is_reached_where_the_learner_is_slow",
        "test_run_collects_asynchronously_evaluates_and_is_resumed_where_learning_had_come_to",
    ),
    "6 produced = consumed + dropped + in flight": (
        "test_counts_add_up_at_all_times",
        "test_dropped_rollouts_make_room_for_others_and_are_known_to_be_missing",
    ),
    "7 global_step counts real steps, and changes on one thread": (
        "test_global_step_counts_the_steps_learned_from_on_one_thread",
        "test_steps_that_were_not_executed_are_not_counted",
    ),
    "8 evaluation and saving fire once per crossing": (
        "test_evaluation_and_saving_fire_once_per_crossing_and_the_logs_steps_only_grow",
    ),
    "9 an evaluation's pause loses, repeats and resets nothing": (
        "test_evaluation_pauses_the_collector_and_loses_repeats_and_resets_nothing",
        "test_pause_stops_every_step_and_loses_repeats_and_resets_nothing",
    ),
    # How soon is measured by benchmarks/async.py, as a test would measure the machine.
    "10 a collector's error reaches train() with its traceback": (
        "test_error_of_the_collector_reaches_train_with_its_traceback",
        "test_error_of_a_step_reaches_the_learner_with_its_traceback",
    ),
    "11 stop() may be called again, ends within its time though the buffer is full, and start() works again": (
        "test_stop_is_idempotent_and_start_works_again",
        "test_stop_ends_though_the_buffer_is_full",
        "test_stop_wakes_a_learner_that_waits_for_a_rollout",
        "test_stop_says_so_where_a_forward_pass_outlasts_its_deadline",
    ),
    "12 a learner's failure stops the collector": ("test_failure_of_the_learner_stops_the_collector",),
    "13 a flattened rollout is refused": (
        "test_flattened_rollout_is_refused_by_the_algorithms_and_never_reshaped",
        "test_flattened_rollout_is_refused",
    ),
    "14 GAE across resets is that of the synchronous path": (
        "test_with_no_staleness_the_rollouts_and_their_advantages_are_those_of_the_synchronous_collector",
        "test_gae_across_an_episode_that_ends_within_a_chunk",
    ),
    "15 stored steps do not alias live buffers": ("test_stored_steps_do_not_alias_live_buffers",),
    "16 actions reach the environment as its action manager takes them": (
        "test_actions_reach_the_environment_as_its_action_manager_takes_them",
        "test_actions_of_a_chunk_reach_the_environment_in_order",
    ),
    "17 one reset at the start": ("test_environments_are_reset_once_at_the_start",),
    "18 collect and forward have one signature everywhere": (
        "test_collect_has_one_signature_everywhere_and_so_has_the_choice_of_actions",
    ),
    "19 max_staleness 0 is the synchronous training bit for bit": (
        "test_training_without_staleness_equals_the_synchronous_one_bit_for_bit_also_when_it_is_resumed",
        "test_asynchronous_training_without_staleness_equals_the_synchronous_one_bit_for_bit",
    ),
    "20 without lag the decoupled loss is PPO's": ("test_without_lag_the_update_is_that_of_ppo_to_the_last_bit",),
    "21 GRPO's groups are complete, of one start and one version": (
        "test_grpo_gets_complete_groups_of_one_start_and_one_version",
    ),
    "22 dictionaries and TensorDicts of observations convert alike": (
        "test_dictionaries_and_tensordicts_of_observations_convert_alike",
    ),
    "23 the log's steps only grow": (
        "test_evaluation_and_saving_fire_once_per_crossing_and_the_logs_steps_only_grow",
        "test_second_training_goes_on_where_the_first_ended",
    ),
    "24 everything is reachable from the config": (
        "test_everything_is_reachable_from_the_config",
        "test_vla_switches_to_asynchronous_collection",
        "test_asynchronous_training_learns_from_chunks_of_older_policies",
    ),
    "25 masked actions contribute no gradient": (
        "test_actions_that_were_not_executed_contribute_no_gradient",
        "test_gradient_of_an_action_that_is_never_executed_is_zero",
    ),
}

# What no thread has a part in needs no delays.
WITHOUT_THREADS = ("13 ", "16 ", "18 ", "20 ", "22 ", "24 ", "25 ")


@pytest.mark.parametrize("invariant", list(INVARIANTS))
def test_invariant_is_held_by_tests_and_where_threads_meet_by_one_with_random_delays(invariant: str) -> None:
    functions = []
    for name in INVARIANTS[invariant]:
        found = [vars(module)[name] for module in MODULES if name in vars(module)]
        assert len(found) == 1, name
        functions += found
    if not invariant.startswith(WITHOUT_THREADS):
        assert any("jitter" in inspect.signature(function).parameters for function in functions)


def test_there_are_25_invariants() -> None:
    assert [int(invariant.split()[0]) for invariant in INVARIANTS] == list(range(1, 26))
