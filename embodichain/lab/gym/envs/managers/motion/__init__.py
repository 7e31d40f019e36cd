"""Imitation of reference motions: the command ``motion``, and terms of all kinds that belong to it.

They follow DeepMimic (Peng et al., 2018) and BeyondMimic (Liao et al., arXiv 2508.08241; its code is
whole_body_tracking, also in mjlab). The command's *anchor* is a link. *Aligned* bodies are the reference's, moved with
the reference's anchor to the robot's, horizontally and about the vertical axis, so that drift does not count as a wrong
pose.

Shapes: N environments, n in ``env_ids``, J joints, T frames of all clips, K parts of them, B bodies of the command. A
body's state [13] is its position, quaternion (w, x, y, z), linear and angular velocity in the world frame.
"""
