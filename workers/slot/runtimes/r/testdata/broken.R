stop("not today")
