"""Networks on pairs of states: that of Castro (2020), and networks with one value per action."""
