"""The import paths that users' code has: each name from where it is documented; and ``import embodichain as ec``."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import embodichain as ec
from embodichain import cli
from tests.agents.rl.fakes import tiny_config, write_config

MODELS = """Policy ActorCritic ActorOnly VLAPolicy register_policy build_policy get_registered_policy_names
    build_mlp_from_cfg MLP load_vla_model"""
ALGO = """BaseAlgorithm PPO PPOCfg GRPO GRPOCfg compute_gae build_algo register_algo get_registered_algo_names"""
ENVS = "embodichain.lab.gym.envs"
MANAGERS = f"{ENVS}.managers"

PATHS = {
    "embodichain.agents.rl.train": "train_from_config main parse_args",
    "embodichain.agents.rl.algo": ALGO,
    "embodichain.agents.rl.models": MODELS,
    "embodichain.agents.rl.buffer": "RolloutBuffer VLABuffer transition_view iterate_minibatches",
    "embodichain.agents.rl.collector": "BaseCollector SyncCollector AsyncCollector",
    "embodichain.agents.rl.utils": "AlgorithmCfg dict_to_tensordict flatten_dict_observation",
    "embodichain.agents.rl.utils.trainer": "Trainer",
    "embodichain.learning.rl": "algo buffer collector models train utils",
    "embodichain.lab.sim": "SimulationManager SimulationManagerCfg",
    "embodichain.lab.sim.objects": "Robot RigidObject Articulation",
    "embodichain.lab.sim.cfg": """RobotCfg RigidObjectCfg ArticulationCfg JointDrivePropertiesCfg
        RigidBodyAttributesCfg""",
    "embodichain.lab.sim.shapes": "CubeCfg SphereCfg MeshCfg",
    ENVS: "BaseEnv EnvCfg EmbodiedEnv EmbodiedEnvCfg",
    f"{ENVS}.tasks.rl": "build_env",
    MANAGERS: "ActionManager ObservationManager RewardManager EventManager DatasetManager Functor",
    f"{MANAGERS}.cfg": "FunctorCfg ActionTermCfg ObservationCfg RewardCfg EventCfg DatasetCfg SceneEntityCfg",
    f"{MANAGERS}.actions": """DeltaQposTerm QposTerm QposDenormalizedTerm QposNormalizedTerm EefPoseTerm QvelTerm
        QfTerm""",
    f"{MANAGERS}.observations": """get_object_pose get_rigid_object_pose get_rigid_object_velocity get_robot_eef_pose
        normalize_robot_joint_data target_position get_sensor_pose_in_robot_frame get_sensor_intrinsics
        compute_semantic_mask compute_exteroception get_object_body_scale get_object_uid
        get_rigid_object_physics_attributes get_articulation_joint_drive""",
    f"{MANAGERS}.rewards": """distance_between_objects distance_to_target incremental_distance_to_target
        reaching_behind_object orientation_alignment joint_velocity_penalty action_smoothness_penalty
        joint_limit_penalty success_reward""",
    f"{MANAGERS}.events": """replace_assets_from_group prepare_extra_attr register_entity_attrs register_entity_pose
        register_info_to_env drop_rigid_object_group_sequentially set_detached_uids_for_env_reset""",
    f"{MANAGERS}.randomization": """randomize_rigid_object_pose randomize_target_pose randomize_robot_qpos
        randomize_robot_eef_pose randomize_articulation_root_pose planner_grid_cell_sampler
        randomize_rigid_object_mass randomize_rigid_object_center_of_mass randomize_rigid_object_scale
        randomize_rigid_objects_scale randomize_visual_material set_rigid_object_visual_material
        set_rigid_object_group_visual_material randomize_light randomize_emission_light randomize_camera_extrinsics
        randomize_camera_intrinsics""",
    f"{MANAGERS}.record": "record_camera_data record_camera_data_async",
    f"{MANAGERS}.datasets": "LeRobotRecorder",
    "embodichain.lab.gym.utils.registration": "register_env make",
    "embodichain.lab.gym.utils.gym_utils": "config_to_cfg DEFAULT_MANAGER_MODULES",
    "embodichain.utils": "configclass logger",
    "embodichain.utils.utility": "load_json",
    "embodichain.utils.module_utils": "find_function_from_modules",
}


@pytest.mark.ext
@pytest.mark.parametrize("module", PATHS)
def test_documented_names_are_where_users_import_them_from(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in PATHS[module].split() if not hasattr(found, name)]
    assert missing == []


@pytest.mark.parametrize("module", ["", ".algo", ".algo.ppo", ".buffer", ".collector", ".train", ".utils.trainer"])
def test_newer_paths_are_the_same_modules(module: str) -> None:
    newer = importlib.import_module(f"embodichain.learning.rl{module}")
    assert newer is importlib.import_module(f"embodichain.agents.rl{module}")
    policies = importlib.import_module("embodichain.learning.rl.policies")
    assert policies is importlib.import_module("embodichain.agents.rl.models")


def test_newer_path_has_no_other_modules() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'embodichain\.learning\.rl\.apg'$"):
        importlib.import_module("embodichain.learning.rl.apg")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'embodichain\.learning\.il'$"):
        importlib.import_module("embodichain.learning.il")


def test_newer_command_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train-rl", "--config", "absent.json"]) == 2
    assert capsys.readouterr().err == f"error: absent.json: no such file (working directory {tmp_path})\n"


@pytest.mark.ext
def test_older_name_of_the_vla_policy_is_the_same_class() -> None:
    models = importlib.import_module("embodichain.agents.rl.models")
    assert models.VLAPlaceholderPolicy is models.VLAPolicy


def parameters(path: str) -> list[str]:
    """The names of a function's parameters; ``package.module:Class.method``."""
    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    return [name for name in inspect.signature(found).parameters if name != "self"]


RL = "embodichain.agents.rl"


@pytest.mark.ext
@pytest.mark.parametrize(
    ("path", "names"),
    [
        (f"{RL}.train:train_from_config", "config_path distributed"),
        (f"{RL}.models:build_policy", "block obs_space action_space device actor critic"),
        (f"{RL}.models:build_mlp_from_cfg", "cfg in_dim out_dim"),
        (f"{RL}.models:load_vla_model", "model_path model_class model_config device"),
        (f"{RL}.models:Policy.forward", "td deterministic"),
        (f"{RL}.models:Policy.get_action", "td deterministic"),
        (f"{RL}.models:Policy.get_value", "td"),
        (f"{RL}.models:Policy.evaluate_actions", "td"),
        (f"{RL}.algo:BaseAlgorithm.update", "rollout"),
        (f"{RL}.algo:compute_gae", "rollout gamma gae_lambda"),
        (f"{RL}.algo:build_algo", "name cfg_kwargs policy device distributed"),
        (f"{RL}.buffer:RolloutBuffer", "num_envs rollout_len obs_dim action_dim device"),
        (f"{RL}.buffer:iterate_minibatches", "flat batch_size device"),
        (f"{RL}.buffer:transition_view", "rollout flatten"),
        (f"{RL}.collector:SyncCollector", "env policy device on_step_callback"),
        (f"{RL}.collector:SyncCollector.collect", "num_steps rollout"),
        (f"{RL}.collector:AsyncCollector", "env policy buffer device on_step_callback"),
        (f"{RL}.utils:dict_to_tensordict", "obs device"),
        ("embodichain.lab.gym.envs.tasks.rl:build_env", "id base_env_cfg"),
        ("embodichain.lab.gym.utils.gym_utils:config_to_cfg", "data manager_modules"),
        ("embodichain.utils.module_utils:find_function_from_modules", "name modules raise_if_not_found"),
    ],
)
def test_documented_parameters_come_first_and_in_their_order(path: str, names: str) -> None:
    there = parameters(path)
    assert there[: len(names.split())] == names.split()


def test_import_loads_no_torch_and_make_knows_the_shipped_tasks() -> None:
    code = "import sys, embodichain as ec; assert 'torch' not in sys.modules; ec.make('CartPoleRL', num_envs=2)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_those_that_a_user_types() -> None:
    assert dir(ec) == ec.__all__
    for name in ec.__all__:
        assert callable(getattr(ec, name))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        ec.trian  # noqa: B018


def test_training_loading_and_acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path, tiny_config(trainer__enable_eval=False))
    summary = ec.train(config, **{"trainer.iterations": 1})
    assert summary["env_steps"] == 8
    env = ec.make("CartPoleRL", num_envs=3)
    obs, _ = env.reset(seed=1)
    assert ec.load_policy(summary["run_folder"]).act(obs).shape == (3, 1)
