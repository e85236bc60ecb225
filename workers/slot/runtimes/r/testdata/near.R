offset <- 0
