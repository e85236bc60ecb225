# Single calls, in slots that stay until the session ends or others are chosen.

# The command that runs calls, with its folder and the calls that have no outcome yet, by their number; NULL before the first.
calls <- new.env(parent = emptyenv())
calls$session <- NULL

gpu_call <- function(f, ..., .seed = TRUE, .relay = TRUE) {
  f <- match.fun(f)
  whether(".relay", .relay)
  session <- open_session()
  drawn <- streams(1L, .seed)
  carried <- carry(bound(f, list(...), NULL))
  name <- number(session$count)
  call <- structure(class = "gpumux_call", list2env(
    list(session = session, path = file.path(session$folder, name), state = "waits", output = "", relayed = !.relay),
    parent = emptyenv()
  ))
  saveRDS(list(f = carried$f, packages = carried$packages, state = drawn$states[[1L]]), call$path, compress = FALSE)
  if (!is.null(drawn)) set_state(drawn$after)
  suspendInterrupts({
    session$count <- session$count + 1
    assign(name, call, session$pending)
    session$unsent <- c(session$unsent, charToRaw(sprintf("\"%s\"\n", name)))
  })
  while (session$open && length(session$unsent <- session$process$write_input(session$unsent)) > 0L) collect(session, 10L)
  call
}

gpu_value <- function(call) {
  while (call$state == "waits") collect(call$session, -1L)
  if (!call$relayed) {
    call$relayed <- TRUE
    relay(call$output, call$outcome)
  }
  if (call$state != "done") stop(call$error)
  call$outcome$value
}

gpu_resolved <- function(call) {
  if (call$state == "waits") collect(call$session, 0L)
  call$state != "waits"
}

gpu_cancel <- function(call) {
  # The file is that of who renames it first: a slot that begins the call, or this.
  if (call$state == "waits" && suppressWarnings(file.rename(call$path, paste0(call$path, ".cancelled")))) {
    fail(call, "cancelled", "gpumux_cancelled", "the call was cancelled")
  }
  call$state == "cancelled"
}

print.gpumux_call <- function(x, ...) {
  gpu_resolved(x)
  state <- if (x$state == "waits" && file.exists(paste0(x$path, ".begun"))) "runs" else x$state
  cat("<gpu_call: ", state, ">\n", sep = "")
  invisible(x)
}

# The session that calls go to, started where there is none.
open_session <- function() {
  if (!is.null(calls$session)) collect(calls$session, 0L)
  if (!is.null(calls$session)) return(calls$session)
  folder <- tempfile("gpumux-")
  dir.create(folder, mode = "0700")
  writeLines(source_of(c("perform", "draw_from", "answer"),
    "folder <- getwd()",
    "function(name) answer(file.path(folder, name))"
  ), file.path(folder, "call.R"))
  session <- new.env(parent = emptyenv())
  session$process <- start(c("stream", paste0(file.path(folder, "call.R"), ":run"), "--unordered", "--quiet", pass(), daemons$words), "|")
  session$folder <- folder
  session$pending <- new.env(parent = emptyenv())
  session$count <- 0
  session$unsent <- raw()
  session$open <- TRUE
  reg.finalizer(session, close_session, onexit = TRUE)
  calls$session <- session
  session
}

# End the session. Calls without an outcome fail with the condition why.
close_session <- function(session, why = NULL) {
  if (!session$open) return(invisible())
  session$open <- FALSE
  if (identical(calls$session, session)) calls$session <- NULL
  end(session$process)
  unlink(session$folder, recursive = TRUE)
  for (name in ls(session$pending)) {
    call <- get(name, session$pending)
    if (call$state != "waits") next
    if (is.null(why)) fail(call, "failed", "gpumux_ended", "gpu_daemons() has ended the session of the call") else {
      call$error <- why
      call$state <- "failed"
    }
  }
}

fail <- function(call, state, class, message) {
  call$error <- structure(class = c(class, "error", "condition"), list(message = message, call = NULL))
  call$state <- state
}

# Take the outcomes that are there, waiting for at most so many milliseconds.
collect <- function(session, wait) {
  if (!session$open) return(invisible())
  session$process$poll_io(wait)
  # An interrupt loses no outcome.
  suspendInterrupts({
    lines <- lines_of(session$process, 0L)
    for (line in lines) take(session, jsonlite::parse_json(line))
    if (is.null(lines)) {
      why <- tryCatch(check(session$process), error = identity)
      close_session(session, why)
    }
  })
}

take <- function(session, row) {
  name <- number(row$index)
  call <- get(name, session$pending)
  rm(list = name, envir = session$pending)
  files <- paste0(call$path, c(".begun", ".cancelled", ".value"))
  on.exit(unlink(files))
  if (call$state == "cancelled") return()
  call$output <- row$output
  value <- files[[3L]]
  call$outcome <- if (file.exists(value)) readRDS(value)
  if (is.null(row$fault)) {
    call$state <- "done"
    return()
  }
  # The error of the function where it raised one, with what is known of the fault.
  call$error <- fault(row)
  raised <- call$outcome$error
  call$outcome <- NULL
  if (!is.null(row$fault$class) && is.list(raised)) {
    raised[c("fault", "output")] <- call$error[c("fault", "output")]
    class(raised) <- union("gpumux_fault", class(raised))
    call$error <- raised
  }
  call$state <- "failed"
}
