"""The catalogue of terms: complete, and as committed."""

import re

import pytest

from scripts.make_terms import PAGE, page, term_text

# What users' configs may name.
TERMS = {
    "Actions": """
        DeltaQposTerm EefPoseTerm JointPositionTerm QfTerm QposDenormalizedTerm QposNormalizedTerm QposTerm QvelTerm
        MotionPositionTerm""",
    "Commands": "UniformVelocityCommand MotionCommand",
    "Observations": """
        compute_exteroception compute_semantic_mask get_sensor_intrinsics get_sensor_pose_in_robot_frame
        get_articulation_joint_drive get_object_body_scale get_object_pose get_object_uid
        get_rigid_object_physics_attributes get_rigid_object_pose get_rigid_object_velocity get_robot_eef_pose
        normalize_robot_joint_data target_position
        base_ang_vel base_height base_lin_vel feet_contact gait_phase generated_command joint_pos_rel joint_vel
        last_action projected_gravity motion_joints_ahead motion_anchor_pose motion_bodies motion_phase""",
    "Rewards": """
        action_smoothness_penalty distance_between_objects distance_to_target incremental_distance_to_target
        joint_limit_penalty joint_velocity_penalty orientation_alignment reaching_behind_object success_reward
        action_rate_l2 ang_vel_xy_l2 base_height_l2 feet_air_time feet_clearance feet_gait feet_impact feet_slide
        flat_orientation_l2 is_alive is_terminated joint_acc_l2 joint_pos_limits joint_torque_limits joint_torques_l2
        joint_vel_l2 lin_vel_z_l2 posture track_ang_vel_z_exp track_lin_vel_xy_exp undesired_contacts
        motion_tracking_exp""",
    "Terminations": """
        bad_orientation base_height_below illegal_contact motion_anchor_tilt motion_body_heights""",
    "Curriculum": "command_range motion_failures",
    "Domain randomization": """
        planner_grid_cell_sampler randomize_articulation_root_pose randomize_rigid_object_center_of_mass
        randomize_rigid_object_mass randomize_rigid_object_pose randomize_rigid_object_scale
        randomize_rigid_objects_scale randomize_robot_eef_pose randomize_robot_qpos randomize_target_pose
        randomize_camera_extrinsics randomize_camera_intrinsics randomize_emission_light randomize_light
        randomize_visual_material set_rigid_object_group_visual_material set_rigid_object_visual_material
        push_robot randomize_base_pose randomize_base_velocity randomize_joint_velocity randomize_link_center_of_mass
        randomize_link_friction randomize_link_mass randomize_motor_strength""",
    "Other events": """
        drop_rigid_object_group_sequentially prepare_extra_attr register_entity_attrs register_entity_pose
        register_info_to_env replace_assets_from_group set_detached_uids_for_env_reset""",
    "Recording": "record_camera_data record_camera_data_async",
    "Datasets": "LeRobotRecorder",
}


def test_committed_catalogue_is_what_the_script_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python scripts/make_terms.py"


@pytest.mark.parametrize("section", TERMS)
def test_every_term_that_configs_may_name_is_in_its_section(section: str) -> None:
    _, _, text = page().partition(f"## {section}\n")
    found = re.findall(r"^### `(\w+)`$", text.partition("\n## ")[0], flags=re.MULTILINE)
    assert set(TERMS[section].split()) <= set(found)


def test_every_parameter_is_explained() -> None:
    rows = [line for line in page().splitlines() if line.startswith("- `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("): ")] == []


def term(cup: str, heights: tuple[int, int] = (1, 2), speed: float | None = None) -> None:
    """Return :func:`nothing` of ``cup``.

    Args:
        cup: which one,
            or another.
        heights: m.
        speed: m/s, or | none.

    Returns:
        [N].
    """


def test_text_of_a_term_is_its_docstring_with_its_parameters() -> None:
    assert term_text("term", term) == (
        "### `term`\n\nReturn `nothing` of `cup`.\n\nReturns [N].\n\n"
        "- `cup` (str, required): which one, or another.\n"
        "- `heights` (tuple[int, int], `[1, 2]`): m.\n"
        "- `speed` (float | null, `null`): m/s, or | none.\n"
    )
