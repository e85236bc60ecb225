kable <- function(x, caption) print(structure(x, caption = caption), digits = 3)
opts_chunk <- list(set = function(...) invisible())
