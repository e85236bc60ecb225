# What a call costs, from its submit to its value, beside those of the packages parallel and future: Rscript bench.R [TIMES]
#
# Each way has one process and its first call behind it. Needs the gpumux command, and future.
library(gpumux)

times <- as.integer(c(commandArgs(TRUE), 200L)[[1L]])
gpu_daemons(1)
cluster <- parallel::makeCluster(1)
future::plan(future::multisession, workers = I(1))
scale <- 2
f <- function(x) scale * x[[1L]]

ways <- list(
  `gpu_call` = function(x) gpu_value(gpu_call(f, x)),
  `parallel, a PSOCK cluster` = function(x) {
    parallel::clusterExport(cluster, "scale")
    parallel::clusterCall(cluster, f, x)[[1L]]
  },
  `parallel, mcparallel` = function(x) parallel::mccollect(parallel::mcparallel(f(x)))[[1L]],
  `future, multisession` = function(x) future::value(future::future(f(x)))
)
for (bytes in c(8, 8e6)) {
  x <- numeric(bytes / 8) + 1
  n <- if (bytes > 8) max(1L, times %/% 10L) else times
  for (call in ways) stopifnot(call(x) == 2)
  # In turns, so that the load of the machine is the same for each.
  took <- replicate(n, vapply(ways, function(call) system.time(call(x), gcFirst = FALSE)[["elapsed"]], 0))
  cat(sprintf("%10.0f bytes  %-26s median %7.1f ms, quartiles %.1f and %.1f\n", bytes, names(ways), 1000 * apply(took, 1, median),
    1000 * apply(took, 1, quantile, 0.25), 1000 * apply(took, 1, quantile, 0.75)), sep = "")
}
begin <- Sys.time()
calls <- lapply(seq_len(1000), function(i) gpu_call(f, i))
for (call in calls) gpu_value(call)
cat(sprintf("1000 calls at once: %.2f ms each\n", as.numeric(Sys.time() - begin, units = "secs")))
parallel::stopCluster(cluster)
