"""Vision-language-action policies; see the README of this folder."""
