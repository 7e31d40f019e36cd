"""Trainings and tasks in the browser, by viser; see the README of this folder."""
