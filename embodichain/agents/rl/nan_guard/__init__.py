"""What a training does where numbers stop being finite: it skips, counts, keeps a bundle, and ends."""
