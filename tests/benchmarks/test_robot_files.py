"""Table of robot files: those found, and the verdict on each."""

import sys
from pathlib import Path

import pytest

from benchmarks.robot_files import find_files, main

LINK = '<body><joint name="j"{0}/><geom size=".1"/></body>'


def test_included_files_and_other_xml_are_no_robots(tmp_path: Path) -> None:
    (tmp_path / "scene.xml").write_text('<mujoco><include file="sub/robot.xml"/></mujoco>', encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "robot.xml").write_text("<mujoco></mujoco>", encoding="utf-8")
    (tmp_path / "arm.urdf").write_text('<robot name="a"></robot>', encoding="utf-8")
    (tmp_path / "package.xml").write_text("<package></package>", encoding="utf-8")
    assert [file.name for file in find_files([tmp_path])] == ["arm.urdf", "scene.xml"]


def test_each_file_has_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    joints = {"good": "", "ball": ' type="ball"', "broken": ' type="none"'}
    for name, kind in joints.items():
        text = f"<mujoco><worldbody>{LINK.format(kind)}</worldbody></mujoco>"
        (tmp_path / f"{name}.xml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["robot_files", str(tmp_path)])
    main()
    lines = capsys.readouterr().out.splitlines()
    verdicts = [line.split(str(tmp_path))[0].strip() for line in lines if str(tmp_path) in line]
    assert (verdicts[0], verdicts[-1]) == ("refused", "as meant")
    assert lines[-1] == "refused: 1, not counted: 1, as meant: 1"
