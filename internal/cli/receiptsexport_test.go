package cli

var AttemptsOf = attemptsOf
