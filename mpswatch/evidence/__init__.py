"""What measured numbers are worth: intervals, verdicts and slowdowns. Pure functions; docs/method.md says why these."""
