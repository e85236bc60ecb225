# What programs for the package's model use: purrr's words, with slots behind them.

in_parallel <- function(.f, ...) {
  .f <- match.fun(.f)
  environment(.f) <- list2env(list(...), parent = environment(.f))
  structure(.f, class = c("gpumux_parallel", "function"))
}

map <- function(.x, .f, ...) {
  if (inherits(.f, "gpumux_parallel")) {
    # Without daemons it runs on the CPU.
    words <- if (is.null(daemons$words)) c("--pool", "cpu") else daemons$words
    return(over(.x, list(unclass(.f)), list(...), "in_parallel", words))
  }
  before <- if ("package:gpumux" %in% search()) parent.env(as.environment("package:gpumux")) else globalenv()
  hidden <- get0("map", before, mode = "function")
  if (is.null(hidden)) stop("map() is for functions of in_parallel(), and for all that the map() of another package takes", call. = FALSE)
  hidden(.x, .f, ...)
}
