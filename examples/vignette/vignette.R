# The calls of the vignette of the R package gpumux, with gpumux's own R package: Rscript vignette.R [TIMES]
#
# It needs a GPU and the packages mirai, tensorflow, microbenchmark and purrr.
library(mirai)
library(tensorflow)
library(microbenchmark)
library(purrr)
library(gpumux) # last, so that map() and in_parallel() are gpumux's

times <- as.integer(c(commandArgs(TRUE), 5L)[[1L]])

product <- function(rows, device) {
  library(tensorflow)
  with(tf$device(if (device == "gpu") "/gpu:0" else "/cpu:0"), {
    x <- tf$random$normal(shape(rows, rows))
    as.numeric(tf$reduce_sum(tf$linalg$matmul(x, x)))
  })
}
heavy_task <- function(device = "gpu") product(2048, device)
medium_task <- function(device = "gpu") product(1024, device)
light_task <- function() Sys.time()

four <- function(task, device = "gpu") {
  tasks <- list(
    heavy = \() rep(device, 4) |> map(in_parallel(\(x) heavy_task(x), heavy_task = heavy_task)),
    medium = \() rep(device, 4) |> map(in_parallel(\(x) medium_task(x), medium_task = medium_task)),
    light = \() rep(device, 4) |> map(in_parallel(\(x) light_task(), light_task = light_task))
  )
  summary(microbenchmark(tasks[[task]](), times = times, unit = "seconds"))
}

on_gpu <- function(task, n_workers, worker_type) {
  gpumux::gpu_daemons(n_workers = n_workers, gpu_ids = 0, memory_per_worker_mb = 1024, framework = "tensorflow", worker_type = worker_type)
  on.exit(gpumux::gpu_daemons(n_workers = 0))
  four(task)
}

on_cpu <- function(task) {
  mirai::daemons(4)
  on.exit(mirai::daemons(0))
  four(task, "cpu")
}

if (nrow(gpumux::list_gpus()) == 0) stop("there is no GPU")
for (task in c("heavy", "medium", "light")) {
  rows <- list(
    Persistent = on_gpu(task, 4, "persistent"), Proxy = on_gpu(task, 4, "proxy"), `Sequential GPU` = on_gpu(task, 1, "persistent"),
    CPU = on_cpu(task)
  )
  cat(sprintf("%-7s %-15s %8.3f s\n", task, names(rows), vapply(rows, \(row) row$median, 0)), sep = "")
}
