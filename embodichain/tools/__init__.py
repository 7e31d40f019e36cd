"""Products that know the learner: reports, comparisons, self-tests, exports. The learner never knows them."""
