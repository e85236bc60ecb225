# Needs the gpumux command, in GPUMUX_BINARY or on PATH.
if (!nzchar(Sys.getenv("GPUMUX_BINARY")) && !nzchar(Sys.which("gpumux"))) {
  message("skipped: there is no gpumux command")
  quit("no")
}
library(gpumux)
fails <- function(expression) tryCatch({ expression; NULL }, error = identity)
wait <- function(condition) {
  limit <- Sys.time() + 60
  while (!condition()) if (Sys.time() > limit) stop("waited a minute for ", deparse(body(condition)), call. = FALSE)
}
gpu_daemons(1)

# A call has its function, arguments and globals as they were, and its value what R it was.
scale <- 2
frame <- data.frame(n = 1:2, at = as.Date("2026-02-01") + 0:1)
scaled <- gpu_call(function(x, by = 1, with) with(x * by * scale), 3, by = 5, with = function(x) x + scale)
scale <- 100
stopifnot(gpu_value(scaled) == 32, gpu_value(scaled) == 32, gpu_resolved(scaled))
stopifnot(identical(gpu_value(gpu_call(identity, frame)), frame), is.null(gpu_value(gpu_call(identity, NULL))))

# One process stays, and calls run one after the other in it, more of them than the pipe holds.
stopifnot(identical(gpu_value(gpu_call(Sys.getpid)), gpu_value(gpu_call(Sys.getpid))))
many <- lapply(1:3000, function(i) gpu_call(function(i) i, i))
stopifnot(identical(lapply(many, gpu_value), as.list(1:3000)))

# Nobody waits for a call but who asks for its value; one that has not begun can be cancelled.
open <- tempfile()
waits <- gpu_call(function() while (!file.exists(open)) Sys.sleep(0.01))
behind <- gpu_call(identity, 1)
last <- gpu_call(identity, 2)
shown <- function(call) capture.output(print(call))
wait(function() shown(waits) == "<gpu_call: runs>")
stopifnot(!gpu_resolved(waits), !gpu_cancel(waits), gpu_cancel(behind), gpu_cancel(behind), gpu_resolved(behind))
stopifnot(shown(last) == "<gpu_call: waits>", shown(behind) == "<gpu_call: cancelled>")
file.create(open)
stopifnot(is.null(gpu_value(waits)), gpu_value(last) == 2, inherits(fails(gpu_value(behind)), "gpumux_cancelled"), !gpu_cancel(last))

# An interrupt ends the wait for a value, not the call.
go <- tempfile()
end <- tempfile()
session <- Sys.getpid()
until <- function(path) while (!file.exists(path)) Sys.sleep(0.01)
call <- gpu_call(function() {
  until(go)
  tools::pskill(session, tools::SIGINT)
  until(end)
  5
})
interrupted <- tryCatch({
  file.create(go)
  gpu_value(call)
}, interrupt = function(i) TRUE)
file.create(end)
stopifnot(isTRUE(interrupted), gpu_value(call) == 5)

# The error of a call is its own; one whose process ends is a fault, and the next call has another process.
own <- structure(class = c("my_error", "error", "condition"), list(message = "mine", call = NULL, n = 7))
raised <- tryCatch(gpu_value(gpu_call(function() { cat("before\n"); stop(own) })), my_error = identity)
stopifnot(raised$n == 7, conditionMessage(raised) == "mine", inherits(raised, "gpumux_fault"), raised$fault$kind == "task_error")
died <- fails(gpu_value(gpu_call(function() tools::pskill(Sys.getpid(), tools::SIGKILL))))
stopifnot(inherits(died, "gpumux_fault"), died$fault$kind == "crash", gpu_value(gpu_call(identity, 3)) == 3)

# What it prints and signals comes with its value, once.
loud <- function(...) gpu_call(function() { cat("printed\n"); warning("careful"); 1 }, ...)
told <- character()
value_of <- function(call) withCallingHandlers(gpu_value(call), warning = function(w) {
  told <<- c(told, conditionMessage(w))
  invokeRestart("muffleWarning")
})
call <- loud()
stopifnot(identical(capture.output(value_of(call)), c("printed", "[1] 1")), identical(capture.output(value_of(call)), "[1] 1"))
stopifnot(identical(told, "careful"), identical(capture.output(value_of(loud(.relay = FALSE))), "[1] 1"))

# Random numbers that set.seed() repeats, another stream for each call.
drawn <- function() { set.seed(4); lapply(list(gpu_call(rnorm, 1), gpu_call(rnorm, 1)), gpu_value) }
stopifnot(identical(first <- drawn(), drawn()), first[[1]] != first[[2]])
stopifnot(identical(gpu_value(gpu_call(rnorm, 1, .seed = 9)), gpu_map(1, rnorm, .seed = 9)[[1]]))

# Other slots end the session and its calls; a session that cannot start says why.
left <- gpu_call(Sys.sleep, 600)
gpu_daemons(2)
stopifnot(inherits(fails(gpu_value(left)), "gpumux_ended"), !gpu_cancel(left), gpu_value(gpu_call(identity, 4)) == 4)
gpu_daemons(1, memory_per_worker_mb = 1e9)
stopifnot(grepl("^`memory_per_worker_mb`: ", fails(gpu_value(gpu_call(identity, 1)))$message))
gpu_daemons(0)
stopifnot(length(list.files(tempdir(), "^gpumux-")) == 0L)
