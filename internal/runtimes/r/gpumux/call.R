# Calls the task for the items of a run and answers each before the next one starts.

# Exit statuses; docs/wire.md lists them.
WIRE <- 64L
LOAD <- 65L

main <- function() {
  tryCatch(serve(), gpumux_end = function(e) 0L, gpumux_wire = function(e) {
    message("gpumux: ", conditionMessage(e))
    WIRE
  })
}

at <- new.env()

serve <- function() {
  connect()
  send("hello", version = VERSION, pid = Sys.getpid(), runtime = quoted(paste0("R ", getRversion())))
  loaded <- attempt(need_jsonlite())
  if (is.null(loaded$fault)) {
    hello <- greeting()
    if (is.null(hello)) return(0L)
    offer(hello, report)
    limit_python(hello$room)
    loaded <- attempt(load_task(hello$target, hello$dir))
  }
  if (!is.null(loaded$fault)) {
    send("fault", fault = loaded$fault)
    return(LOAD)
  }
  send("ready", batch = 0L)
  repeat {
    message <- following()
    if (is.null(message) || message$type == "stop") return(0L)
    switch(message$type,
      run = run(loaded$value, message),
      broken("the worker says ", message$type, " where only run and stop can come")
    )
  }
}

# The worker's first message, or NULL when it has gone instead.
greeting <- function() {
  hello <- receive()
  if (is.null(hello)) return(NULL)
  if (hello$type != "hello") broken("the first message is ", hello$type, "; it must be hello")
  if (hello$version != VERSION) {
    broken("this runtime speaks wire version ", VERSION, ", the worker version ", hello$version,
      "; use the runtime that the worker installs")
  }
  hello
}

need_jsonlite <- function() {
  if (!requireNamespace("jsonlite", quietly = TRUE)) {
    stop(condition("packageNotFoundError", "R has no package jsonlite, which reads the items; run ",
      "install.packages(\"jsonlite\"), or on Debian apt-get install r-cran-jsonlite (R looks in ",
      paste(.libPaths(), collapse = ", "), ")"))
  }
}

since <- function(begin) as.numeric(Sys.time()) - as.numeric(begin)

# Answer the items of a run, whose JSON lies one after the other in its body.
run <- function(task, message) {
  at$run <- message$run
  ends <- cumsum(message$sizes)
  if (length(ends) == 0L || ends[[length(ends)]] != length(message$body)) {
    broken("a run has a body of ", length(message$body), " bytes, and sizes for others")
  }
  for (n in seq_along(ends)) {
    at$n <- n - 1L
    item <- message$body[seq.int(ends[[n]] - message$sizes[[n]] + 1, length.out = message$sizes[[n]])]
    answer(task, item, max(1L, message$attempts), unlist(message$retryOn))
  }
  at$run <- NULL
}

# A condition of none of the classes on, where there are any, is final.
answer <- function(task, body, attempts, on) {
  begin <- Sys.time()
  for (try in seq_len(attempts)) {
    done <- attempt({
      item <- item_of(body)
      valid(json(enter(task(item))))
    })
    if (is.null(done$fault)) break
    gc(verbose = FALSE)
    final <- length(on) > 0L && !any(done$class %in% on)
    if (final) break
  }
  busy <- seconds(since(begin))
  n <- whole(at$n)
  if (is.null(done$fault)) {
    tries <- if (try > 1L) array_of(try)
    size <- array_of(length(done$value))
    send("results", run = whole(at$run), n = n, sizes = size, busy = array_of(busy), attempts = tries, out = grown(), body = done$value)
    return(invisible())
  }
  send("fault", run = whole(at$run), n = n, attempts = try, busy = busy, out = grown(), final = if (final) "true", fault = done$fault)
  await_next()
}

# The bytes of a result's JSON.
valid <- function(text) {
  bytes <- charToRaw(text)
  if (length(bytes) > MAX_FRAME - 1024) {
    stop("the result has ", length(bytes), " bytes, and at most 1 GiB goes over the wire; write it to a file and return its path")
  }
  bytes
}

# The value of an expression, or the fault of its error.
attempt <- function(expression) {
  calls <- NULL
  tryCatch(
    withCallingHandlers(list(value = expression), error = function(e) calls <<- sys.calls()),
    error = function(e) if (inherits(e, c("gpumux_wire", "gpumux_end"))) stop(e) else list(fault = describe(e, calls), class = class(e))
  )
}

report <- function(value) {
  if (is.null(at$run)) stop("gpu_progress() belongs into the function of a task, while an item runs")
  send("progress", run = whole(at$run), n = whole(at$n), value = json(value, "progress"))
}
