# Needs the gpumux command, in GPUMUX_BINARY or on PATH.
if (!nzchar(Sys.getenv("GPUMUX_BINARY")) && !nzchar(Sys.which("gpumux"))) {
  message("skipped: there is no gpumux command")
  quit("no")
}
library(gpumux)
fails <- function(expression) tryCatch({ expression; NULL }, error = identity)

# As lapply, with whatever R has.
twice <- function(x) scale * x
scale <- 2
x <- list(a = 1L, b = c(u = 1.5, v = NA), c = matrix(1:4, 2))
stopifnot(identical(gpu_map(x, twice), lapply(x, twice)))
frames <- list(data.frame(n = 1:2, at = as.Date("2026-02-01") + 0:1), NULL)
stopifnot(identical(gpu_map(frames, identity), frames))
stopifnot(identical(gpu_map(character(), nchar), list()))
stopifnot(identical(gpu_map(1:3, function(x, p, add) add(x^p), 2, add = function(x) x + scale), list(3, 6, 11)))

# Recursion, a closure, and a package that is attached here.
odd <- function(n) if (n == 0) FALSE else even(n - 1)
even <- function(n) if (n == 0) TRUE else odd(n - 1)
adder <- function(n) function(x) x + n
library(stats4)
stopifnot(identical(gpu_map(3:4, odd), list(TRUE, FALSE)), identical(gpu_map(1:2, adder(3)), list(4, 5)))
stopifnot(identical(gpu_map(1, function(x) is.function(mle)), list(TRUE)))

# Persistent and fresh.
gpu_daemons(1)
process <- function(x) Sys.getpid()
stopifnot(length(unique(gpu_map(1:3, process))) == 1L)
gpu_daemons(n = 1, worker_type = "proxy", memory_per_worker_mb = 512)
stopifnot(length(unique(gpu_map(1:3, process))) == 3L)
gpu_daemons(0)

# An item that fails costs itself.
error <- fails(gpu_map(1:4, function(x) if (x == 3) stop("three") else if (x == 4) quit() else x))
stopifnot(inherits(error, "gpumux_error"), grepl("^2 of 4 items failed; the first is item 3: task_error: .*: three", error$message))
third <- error$results[[3]]
stopifnot(identical(error$results[1:2], list(1L, 2L)), inherits(third, "gpumux_fault"), grepl("three", third$fault$traceback))

# What cannot be done is said before anything starts.
stopifnot(grepl("`n_workers` must be a whole number", fails(gpu_daemons())$message))
stopifnot(grepl("`memory_per_worker_mb` must be", fails(gpu_daemons(1, memory_per_worker_mb = "a"))$message))
stopifnot(grepl("there is no GPU 99", fails(gpu_daemons(1, gpu_ids = 99))$message))
stopifnot(grepl("needs `memory_per_worker_mb`", fails(gpu_daemons(1, reserve_memory_mb = 1))$message))
gpu_daemons(1, memory_per_worker_mb = 1e9)
stopifnot(grepl("ended with status 2: .*--memory", fails(gpu_map(1, identity))$message))
gpu_daemons(0)

# The words of the earlier package.
stopifnot(names(list_gpus())[1:5] == c("gpu_id", "vendor", "name", "memory_total_mb", "memory_free_mb"))
square <- function(x) x^2
stopifnot(identical(1:2 |> map(in_parallel(\(x) square(x), square = square)), list(1, 4)))

# Nothing is left of what is done.
stopifnot(length(list.files(tools::R_user_dir("gpumux", "cache"))) == 0L)
