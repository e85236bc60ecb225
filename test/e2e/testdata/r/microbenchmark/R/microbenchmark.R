microbenchmark <- function(..., times, unit) {
  code <- as.list(substitute(list(...)))[-1L]
  time <- vapply(seq_len(times), function(i) system.time(eval(code[[1L]], parent.frame(3L)))[["elapsed"]] * 1e9, 0)
  label <- if (is.null(names(code))) deparse(code[[1L]])[[1L]] else names(code)
  structure(data.frame(expr = label, time = time), class = c("microbenchmark", "data.frame"))
}
summary.microbenchmark <- function(object, ...) {
  at <- function(p) unname(quantile(object$time, p)) / 1e9
  data.frame(expr = object$expr[[1L]], min = at(0), lq = at(0.25), mean = mean(object$time) / 1e9, median = at(0.5), uq = at(0.75),
    max = at(1), neval = nrow(object))
}
