#include "server/options.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/flag_parser.h"
#include "server/memory_budget.h"

// ---- The flags: meaning, unit, range. FlagHelp adds the default. --------------------------------

ABSL_FLAG(std::string, model_dir, "",
          "Folder of the model to serve: config.json and safetensors weights. Required.");
ABSL_FLAG(
    bool, strict, false,
    "Refuse a model whose weights file has tensors that the model does not use; else they are "
    "listed in the log.");
ABSL_FLAG(
    bool, allow_nonfinite_weights, false,
    "Serve a model whose weights have NaN or infinity, with a warning that names the tensors; "
    "else it is refused. A sequence whose outputs they reach gets INTERNAL; ReLU may hide them.");
ABSL_FLAG(bool, check, false,
          "Load the model, print what it is and what memory it takes, and exit.");

ABSL_FLAG(std::string, profile, "",
          "Load the model, time a batch of this shape on one core, SEQUENCESxTOKENS such as 8x128, "
          "print where the time goes and how near each operation is to the machine's limit, and "
          "exit.");

ABSL_FLAG(std::string, listen, "127.0.0.1:50051",
          "Address for gRPC, HOST:PORT. Port 0 takes any free one and logs it. 0.0.0.0 or [::] "
          "listens on all interfaces and needs TLS or --plaintext.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9090",
          "Address for Prometheus, HOST:PORT, path /metrics, HTTP. Port 0 takes any free one.");
ABSL_FLAG(std::string, health_listen, "",
          "Address for grpc.health.v1 alone, HOST:PORT, always in plaintext: for probes that carry "
          "no TLS, such as Kubernetes'. It tells whether the server is ready and alive, so any "
          "address is allowed without --plaintext; who reaches it can take its 64 connections, "
          "so let probes alone reach it. Port 0 takes any free one. \"\" = none: health is "
          "asked for at --listen.");
ABSL_FLAG(bool, plaintext, false,
          "Serve without TLS on an address that is not loopback. Say so only where the network "
          "itself is trusted: tokens and inputs pass through it as they are.");
ABSL_FLAG(
    std::string, tls_cert_file, "",
    "Certificate that the server shows, PEM, followed by those between it and the root. Serves "
    "TLS alone, 1.2 or 1.3. This file and the next three are read again when they change; what "
    "cannot be served is logged, counted and not taken.");
ABSL_FLAG(std::string, tls_key_file, "",
          "Private key of --tls_cert_file, PEM, not encrypted. Both or neither.");
ABSL_FLAG(std::string, tls_client_ca_file, "",
          "Certificates of the authorities, PEM, of which a client needs a certificate to connect "
          "at all (mutual TLS).");
ABSL_FLAG(
    std::string, token_file, "",
    "Bearer tokens, one a line, # starts a comment line: a call needs one of them, as metadata "
    "`authorization: Bearer TOKEN`. 16 to 4096 characters each.");
ABSL_FLAG(
    std::vector<std::string>, allowed_clients, {},
    "Names of the clients that may call, separated by commas: a URI (SPIFFE id) or DNS name of "
    "their certificate, or the common name of one that has neither. Health and reflection "
    "answer every client that could connect. Empty = so do all calls.");
ABSL_FLAG(
    absl::Duration, handshake_timeout, absl::Seconds(20),
    "How long a new connection may take until it is ready for calls, TLS included; one that is "
    "slower is closed. Range: 10ms to 2m.");
ABSL_FLAG(int32_t, max_connections, 1024,
          "gRPC connections open at a time; one more is closed at once. Range: 1 to 65536.");
ABSL_FLAG(int32_t, max_connection_inflight, 64,
          "Calls that one connection may have waiting or at work, open streams included, so that "
          "one sender cannot own the queue. Answers that it has not read, and streams from their "
          "beginning, may hold a quarter of --max_inflight_bytes, or one that is larger; beyond "
          "that it gets no further ones. Range: 1 to 65536.");

ABSL_FLAG(
    absl::Duration, max_connection_age, absl::ZeroDuration(),
    "After how long a connection is asked to go, give or take a tenth, so that clients connect "
    "again and spread over the replicas that there are by then. 5m suits a balancer that "
    "spreads connections, such as a Kubernetes Service; clients that balance by themselves "
    "need none. 0 = never. Range: 0 to 24h.");
ABSL_FLAG(
    absl::Duration, max_connection_age_grace, absl::Minutes(1),
    "How long the calls of a connection that was asked to go may still take; what is left then "
    "is cut off with UNAVAILABLE. Range: 1ms to 1h.");

ABSL_FLAG(absl::Duration, min_ping_interval, absl::Seconds(5),
          "How often a client may ping to keep its connection, with and without calls. The third "
          "ping that comes sooner ends the connection. Range: 1ms to 2h.");

ABSL_FLAG(int64_t, max_sequence_tokens, 0,
          "Longest sequence, tokens. 0 = the model's own limit, or 8192 for models without one. "
          "Range: 0 to 1048576.");
ABSL_FLAG(int64_t, max_request_sequences, 1024, "Sequences per call. Range: 1 to 1048576.");
ABSL_FLAG(int64_t, max_request_tokens, 65536,
          "Tokens per call, all sequences together. Range: 1 to 16777216.");
ABSL_FLAG(int64_t, max_response_bytes, int64_t{256} << 20,
          "Largest answer that a call may ask for, bytes (268435456 = 256 MiB). Range: 1024 to "
          "2147483647.");
ABSL_FLAG(int64_t, max_inflight_bytes, int64_t{1} << 30,
          "What all calls together may hold, bytes (1073741824 = 1 GiB): twice the bytes of each "
          "request, and each answer until it is sent. A call that would exceed it is refused with "
          "RESOURCE_EXHAUSTED. At least --max_response_bytes + 128 MiB, one call of the largest "
          "size. Range: 1 to 1099511627776.");
ABSL_FLAG(absl::Duration, default_deadline, absl::Seconds(30),
          "Deadline of calls that come without one. Range: 1ms to 1h.");

ABSL_FLAG(int64_t, max_queue_requests, 1024,
          "Calls that may wait; one more is refused with RESOURCE_EXHAUSTED. Range: 1 to 1048576.");
ABSL_FLAG(
    int64_t, max_queue_tokens, 131072,
    "Tokens that may wait; a call that would exceed it is refused with RESOURCE_EXHAUSTED. At "
    "least --max_request_tokens. Range: 1 to 1073741824.");
ABSL_FLAG(absl::Duration, max_queue_time, absl::Seconds(5),
          "A call that would wait longer than this, as predicted from the work ahead of it, is "
          "refused with RESOURCE_EXHAUSTED. Range: 1ms to 1h.");
ABSL_FLAG(std::string, shadow_rate, "0",
          "Part of the sequences, as 1/N, that are run once more in fp32 on spare time, to export "
          "how far the served precision lies from it (encoderd_shadow_error). Takes the weights a "
          "second time, in fp32; samples are in memory until they are compared. 0 = none. N: 1 to "
          "1000000000.");

ABSL_FLAG(bool, predict_deadlines, true,
          "Refuse calls at once that are predicted to end after their deadline, and end waiting "
          "ones once that is so: DEADLINE_EXCEEDED where an idle server would be too slow as well, "
          "else RESOURCE_EXHAUSTED. False: calls end when their deadline has passed.");

ABSL_FLAG(int32_t, workers, 0,
          "Worker threads, each with its own batch. 0 = as many as the CPU quota, cpuset and "
          "affinity give, rounded up. Range: 0 to 1024.");
ABSL_FLAG(
    int64_t, max_batch_tokens, 0,
    "Tokens to aim at in a batch; a longer sequence runs alone. 0 = the fewest that run at 97 % of "
    "the best rate, by a measurement at the start, at most 512. Range: 0 to 1048576.");
ABSL_FLAG(absl::Duration, max_batch_wait, absl::ZeroDuration(),
          "How long a free worker may hold back a batch that is not full. 0 is best for CPUs: more "
          "tokens than a few hundred make a batch slower, not cheaper. Range: 0 to 10s.");
ABSL_FLAG(
    std::string, precision, "fp32",
    "Number format of the blocks' matrix products: fp32, bf16 (needs avx512_bf16), int8 "
    "(needs avx512_vnni) or auto: the fastest of those that the CPU runs with an error within "
    "--precision_error_max, measured at the start.");
ABSL_FLAG(double, precision_error_max, 0.01,
          "The largest error of a precision that auto may choose: 1 - cosine between a token's "
          "last_hidden_state and what fp32 gives, for the worst token of a fixed set of made-up "
          "sequences. 0.01 is a cosine of 0.99, which int8 is made to keep; bf16 keeps 0.999. "
          "Range: 0 to 1.");
ABSL_FLAG(std::string, precision_file, "",
          "File (JSON) that pins what auto chooses, so that a fleet agrees: followed where it is "
          "there, else written. One that was made for other weights is refused.");
ABSL_FLAG(
    std::string, isa_max, "auto",
    "Highest instruction set to use, so that a mixed fleet computes the same bits: auto, avx2, "
    "avx512, avx512_vnni, avx512_bf16, avx512_fp16 or amx.");

ABSL_FLAG(absl::Duration, drain_delay, absl::ZeroDuration(),
          "After SIGTERM: how long to keep serving, already NOT_SERVING, until load balancers have "
          "noticed. Range: 0 to 10m.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(20),
          "After --drain_delay: how long accepted calls may take to finish. Range: 0 to 1h.");

ABSL_FLAG(std::string, log_format, "text", "How log lines look: text or json. One line per event.");
ABSL_FLAG(std::string, termination_log, "",
          "File that the reason of a fatal end is written to as well, such as "
          "/dev/termination-log under Kubernetes.");
ABSL_FLAG(
    std::string, access_log, "",
    "File that gets a line of JSON for each call that has ended: when, who, what became of it, "
    "sizes and times; never what a call sent or got. Appended to, and made anew when it has "
    "been moved away; - = stdout. A line that cannot be written is dropped and counted, and "
    "holds no call up. \"\" = none.");
ABSL_FLAG(std::string, access_log_rate, "1/1",
          "Part of the calls that the access log has, as 1/N; those that end with INTERNAL are "
          "always in it. 0 = those alone. N: 1 to 1000000000.");
ABSL_FLAG(bool, version, false, "Print version and build id, and exit.");

namespace encoderd {
namespace {

// The names that engine/ops/runtime.h knows.
constexpr std::array kIsaNames = {"auto",        "avx2",        "avx512", "avx512_vnni",
                                  "avx512_bf16", "avx512_fp16", "amx"};

const std::vector<FlagGroup>& Groups() {
  static const auto* const groups = new std::vector<FlagGroup>{
      {"Model", {"model_dir", "strict", "allow_nonfinite_weights", "check", "profile"}},
      {"Addresses",
       {"listen", "metrics_listen", "health_listen", "plaintext", "max_connections",
        "max_connection_inflight", "max_connection_age", "max_connection_age_grace",
        "min_ping_interval", "handshake_timeout"}},
      {"Keys",
       {"tls_cert_file", "tls_key_file", "tls_client_ca_file", "token_file", "allowed_clients"}},
      {"Limits of a call",
       {"max_sequence_tokens", "max_request_sequences", "max_request_tokens", "max_response_bytes",
        "max_inflight_bytes", "default_deadline"}},
      {"Queue", {"max_queue_requests", "max_queue_tokens", "max_queue_time", "predict_deadlines"}},
      {"Workers and batches", {"workers", "max_batch_tokens", "max_batch_wait", "isa_max"}},
      {"Precision", {"precision", "precision_error_max", "precision_file", "shadow_rate"}},
      {"Shutdown", {"drain_delay", "drain_timeout"}},
      {"Log", {"log_format", "termination_log", "access_log", "access_log_rate", "version"}}};
  return *groups;
}

const char* TlsName(const Options& options) {
  if (options.tls_cert_file.empty()) return "none";
  return options.tls_client_ca_file.empty() ? "server" : "mutual";
}

constexpr std::string_view kAutoPrecision = "auto";

std::string NameOf(std::optional<Precision> precision) {
  return std::string(precision.has_value() ? PrecisionName(*precision) : kAutoPrecision);
}

// N of "1/N", 0 of "0"; nothing of anything else.
std::optional<int64_t> OneIn(std::string_view rate) {
  if (rate == "0") return 0;
  int64_t every = 0;
  if (!rate.starts_with("1/")) return std::nullopt;
  const char* const end = rate.data() + rate.size();
  const auto [read, error] = std::from_chars(rate.data() + 2, end, every);
  if (error != std::errc() || read != end || every < 1 || every > 1'000'000'000) {
    return std::nullopt;
  }
  return every;
}

std::string RateText(int64_t every) { return every > 0 ? absl::StrCat("1/", every) : "0"; }

// Collects faults, each as one line that names the flag.
class Checker {
 public:
  explicit Checker(std::vector<std::string>& faults) : faults_(faults) {}

  void Fault(std::string_view flag, std::string_view expected, std::string_view got) {
    faults_.push_back(absl::StrCat("--", std::string(flag), ": expected ", std::string(expected),
                                   ", got ", std::string(got)));
  }

  void Range(std::string_view flag, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) {
      Fault(flag, absl::StrCat(least, " to ", most), absl::StrCat(value));
    }
  }

  void Fraction(std::string_view flag, double value) {
    if (value >= 0 && value <= 1) return;  // NaN is neither
    Fault(flag, "0 to 1", absl::StrCat(value));
  }

  void Range(std::string_view flag, absl::Duration value, absl::Duration least,
             absl::Duration most) {
    if (value < least || value > most) {
      Fault(flag, absl::StrCat(absl::FormatDuration(least), " to ", absl::FormatDuration(most)),
            absl::FormatDuration(value));
    }
  }

  // What OneIn makes of it; 0 if that is nothing.
  int64_t Rate(std::string_view flag, const std::string& text) {
    const auto every = OneIn(text);
    if (!every.has_value()) Fault(flag, "0 or 1/N with N from 1 to 1000000000", LogValue(text));
    return every.value_or(0);
  }

  // An address that listens nowhere, if it cannot be read.
  ListenAddress Address(std::string_view flag, const std::string& text) {
    auto address = ListenAddress::Parse(text);
    if (address.ok()) return *std::move(address);
    Fault(flag, std::string(address.status().message()), LogValue(text));
    return {};
  }

 private:
  std::vector<std::string>& faults_;
};

void CheckRanges(const Options& options, Checker& check) {
  check.Range("max_connections", options.max_connections, 1, 65536);
  check.Range("max_connection_inflight", options.max_connection_inflight, 1, 65536);
  check.Range("max_connection_age", options.max_connection_age, absl::ZeroDuration(),
              absl::Hours(24));
  check.Range("max_connection_age_grace", options.max_connection_age_grace, absl::Milliseconds(1),
              absl::Hours(1));
  check.Range("min_ping_interval", options.min_ping_interval, absl::Milliseconds(1),
              absl::Hours(2));
  check.Range("handshake_timeout", options.handshake_timeout, absl::Milliseconds(10),
              absl::Minutes(2));
  check.Range("max_sequence_tokens", options.max_sequence_tokens, 0, 1 << 20);
  check.Range("max_request_sequences", options.max_request_sequences, 1, 1 << 20);
  check.Range("max_request_tokens", options.max_request_tokens, 1, 1 << 24);
  check.Range("max_response_bytes", options.max_response_bytes, 1024, 2147483647);  // gRPC's most
  check.Range("max_inflight_bytes", options.max_inflight_bytes, 1, int64_t{1} << 40);
  check.Range("default_deadline", options.default_deadline, absl::Milliseconds(1), absl::Hours(1));
  check.Range("max_queue_requests", options.max_queue_requests, 1, 1 << 20);
  check.Range("max_queue_tokens", options.max_queue_tokens, 1, 1 << 30);
  check.Range("max_queue_time", options.max_queue_time, absl::Milliseconds(1), absl::Hours(1));
  check.Range("workers", options.workers, 0, 1024);
  check.Fraction("precision_error_max", options.precision_error_max);
  check.Range("max_batch_tokens", options.max_batch_tokens, 0, 1 << 20);
  check.Range("max_batch_wait", options.max_batch_wait, absl::ZeroDuration(), absl::Seconds(10));
  check.Range("drain_delay", options.drain_delay, absl::ZeroDuration(), absl::Minutes(10));
  check.Range("drain_timeout", options.drain_timeout, absl::ZeroDuration(), absl::Hours(1));
}

// Which of the keys need which others. What is in the files is for keys.h to judge.
void CheckKeys(const Options& options, Checker& check) {
  const bool tls = !options.tls_cert_file.empty();
  if (tls && options.tls_key_file.empty()) {
    check.Fault("tls_key_file", "the key of --tls_cert_file", "none");
  }
  const auto need = [&check](std::string_view flag, const std::string& got, bool has,
                             std::string_view other) {
    if (!got.empty() && !has) {
      check.Fault(flag, absl::StrCat("none without --", std::string(other)), LogValue(got));
    }
  };
  need("tls_key_file", options.tls_key_file, tls, "tls_cert_file");
  need("tls_client_ca_file", options.tls_client_ca_file, tls, "tls_cert_file");
  need("allowed_clients", absl::StrJoin(options.allowed_clients, ","),
       !options.tls_client_ca_file.empty(), "tls_client_ca_file");
  const auto is_no_name = [](const std::string& name) {
    return name.empty() || absl::StripAsciiWhitespace(name) != name;
  };
  if (std::ranges::any_of(options.allowed_clients, is_no_name)) {
    check.Fault("allowed_clients", "names separated by commas alone",
                LogValue(absl::StrJoin(options.allowed_clients, ",")));
  }
  if (options.plaintext && tls) {
    check.Fault("plaintext", "false with --tls_cert_file", "true");
  }
  // Tokens are no exception: who listens on the way has them at once.
  if (!options.listen.host.empty() && !options.listen.IsLoopback() && !options.plaintext && !tls) {
    check.Fault("listen",
                "a loopback address, TLS by --tls_cert_file and --tls_key_file, or --plaintext to "
                "serve without",
                options.listen.ToString());
  }
}

void CheckTogether(const Options& options, Checker& check) {
  // Else a legal call could find no room in an empty queue.
  if (options.max_request_tokens > options.max_queue_tokens) {
    check.Fault("max_queue_tokens",
                absl::StrCat("at least --max_request_tokens (", options.max_request_tokens, ")"),
                absl::StrCat(options.max_queue_tokens));
  }
  const int64_t largest_call = CallBytes(kMaxRequestBytes, options.max_response_bytes);
  if (options.max_inflight_bytes < largest_call) {
    check.Fault("max_inflight_bytes",
                absl::StrCat("at least --max_response_bytes + 128 MiB (", largest_call, ")"),
                absl::StrCat(options.max_inflight_bytes));
  }
  if (options.max_sequence_tokens > options.max_request_tokens) {
    check.Fault("max_sequence_tokens",
                absl::StrCat("at most --max_request_tokens (", options.max_request_tokens, ")"),
                absl::StrCat(options.max_sequence_tokens));
  }
  if (options.shadow_every > 0 && options.precision == Precision::kFp32) {
    check.Fault("shadow_rate", "0 with --precision=fp32, which it compares with",
                absl::StrCat("1/", options.shadow_every));
  }
  if (!options.precision_file.empty() && options.precision.has_value()) {
    check.Fault("precision_file", "none without --precision=auto",
                LogValue(options.precision_file));
  }
  CheckKeys(options, check);
  const auto same = [](const ListenAddress& one, const ListenAddress& other) {
    return one.port != 0 && one.ToString() == other.ToString();
  };
  if (same(options.listen, options.metrics_listen)) {
    check.Fault("metrics_listen", "another address than --listen",
                options.metrics_listen.ToString());
  }
  if (!options.health_listen.has_value()) return;
  if (same(options.listen, *options.health_listen) ||
      same(options.metrics_listen, *options.health_listen)) {
    check.Fault("health_listen", "another address than --listen and --metrics_listen",
                options.health_listen->ToString());
  }
}

}  // namespace

// ---- Addresses ----------------------------------------------------------------------------------

absl::StatusOr<ListenAddress> ListenAddress::Parse(std::string_view text) {
  const absl::Status expected =
      absl::InvalidArgumentError("HOST:PORT such as 127.0.0.1:50051, [::1]:50051 or localhost:0");
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return expected;

  ListenAddress address;
  std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) return expected;
  if (address.port < 0 || address.port > 65535) return expected;

  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    address.host = host.substr(1, host.size() - 2);
    in6_addr bytes;
    if (inet_pton(AF_INET6, address.host.c_str(), &bytes) != 1) return expected;
    return address;
  }
  // A name, or an IPv4 address if it has nothing but digits and dots.
  address.host = host;
  const auto only = [host](std::string_view set) {
    return host.find_first_not_of(set) == std::string_view::npos;
  };
  in_addr bytes;
  if (only("0123456789.") && inet_pton(AF_INET, address.host.c_str(), &bytes) != 1) return expected;
  if (!only("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_")) return expected;
  return address;
}

std::string ListenAddress::ToString() const {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

bool ListenAddress::IsLoopback() const {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return host == "localhost";
}

// ---- Shapes -------------------------------------------------------------------------------------

std::optional<BatchShape> BatchShape::Parse(std::string_view text) {
  constexpr int64_t kMaxTokens = 1 << 20;
  BatchShape shape;
  const char* const end = text.data() + text.size();
  const auto sequences = std::from_chars(text.data(), end, shape.sequences);
  if (sequences.ec != std::errc() || sequences.ptr == end || *sequences.ptr != 'x') {
    return std::nullopt;
  }
  const auto tokens = std::from_chars(sequences.ptr + 1, end, shape.tokens);
  if (tokens.ec != std::errc() || tokens.ptr != end) return std::nullopt;
  if (shape.sequences < 1 || shape.tokens < 1) return std::nullopt;
  if (shape.sequences > kMaxTokens / shape.tokens) return std::nullopt;
  return shape;
}

// ---- Flags → Options ----------------------------------------------------------------------------

Options ReadOptions(std::vector<std::string>& faults) {
  Checker check(faults);
  Options options = {
      .model_dir = absl::GetFlag(FLAGS_model_dir),
      .listen = check.Address("listen", absl::GetFlag(FLAGS_listen)),
      .metrics_listen = check.Address("metrics_listen", absl::GetFlag(FLAGS_metrics_listen)),
      .plaintext = absl::GetFlag(FLAGS_plaintext),
      .tls_cert_file = absl::GetFlag(FLAGS_tls_cert_file),
      .tls_key_file = absl::GetFlag(FLAGS_tls_key_file),
      .tls_client_ca_file = absl::GetFlag(FLAGS_tls_client_ca_file),
      .allowed_clients = absl::GetFlag(FLAGS_allowed_clients),
      .token_file = absl::GetFlag(FLAGS_token_file),
      .handshake_timeout = absl::GetFlag(FLAGS_handshake_timeout),
      .workers = absl::GetFlag(FLAGS_workers),
      .max_sequence_tokens = absl::GetFlag(FLAGS_max_sequence_tokens),
      .max_request_sequences = absl::GetFlag(FLAGS_max_request_sequences),
      .max_request_tokens = absl::GetFlag(FLAGS_max_request_tokens),
      .max_response_bytes = absl::GetFlag(FLAGS_max_response_bytes),
      .max_inflight_bytes = absl::GetFlag(FLAGS_max_inflight_bytes),
      .max_queue_requests = absl::GetFlag(FLAGS_max_queue_requests),
      .max_queue_tokens = absl::GetFlag(FLAGS_max_queue_tokens),
      .max_queue_time = absl::GetFlag(FLAGS_max_queue_time),
      .max_batch_tokens = absl::GetFlag(FLAGS_max_batch_tokens),
      .max_batch_wait = absl::GetFlag(FLAGS_max_batch_wait),
      .default_deadline = absl::GetFlag(FLAGS_default_deadline),
      .predict_deadlines = absl::GetFlag(FLAGS_predict_deadlines),
      .drain_delay = absl::GetFlag(FLAGS_drain_delay),
      .drain_timeout = absl::GetFlag(FLAGS_drain_timeout),
      .max_connections = absl::GetFlag(FLAGS_max_connections),
      .max_connection_inflight = absl::GetFlag(FLAGS_max_connection_inflight),
      .max_connection_age = absl::GetFlag(FLAGS_max_connection_age),
      .max_connection_age_grace = absl::GetFlag(FLAGS_max_connection_age_grace),
      .min_ping_interval = absl::GetFlag(FLAGS_min_ping_interval),
      .precision_error_max = absl::GetFlag(FLAGS_precision_error_max),
      .precision_file = absl::GetFlag(FLAGS_precision_file),
      .shadow_every = check.Rate("shadow_rate", absl::GetFlag(FLAGS_shadow_rate)),
      .isa_max = absl::GetFlag(FLAGS_isa_max),
      .termination_log = absl::GetFlag(FLAGS_termination_log),
      .access_log = absl::GetFlag(FLAGS_access_log),
      .access_log_every = check.Rate("access_log_rate", absl::GetFlag(FLAGS_access_log_rate)),
      .strict = absl::GetFlag(FLAGS_strict),
      .allow_nonfinite_weights = absl::GetFlag(FLAGS_allow_nonfinite_weights),
      .check = absl::GetFlag(FLAGS_check)};
  if (const std::string health = absl::GetFlag(FLAGS_health_listen); !health.empty()) {
    options.health_listen = check.Address("health_listen", health);
  }
  const std::string profile = absl::GetFlag(FLAGS_profile);
  options.profile = BatchShape::Parse(profile);
  if (!profile.empty() && !options.profile.has_value()) {
    check.Fault("profile", "SEQUENCESxTOKENS such as 8x128, at most 1048576 tokens in all",
                LogValue(profile));
  }
  if (options.model_dir.empty()) check.Fault("model_dir", "the folder of a model", "none");
  if (std::ranges::find(kIsaNames, options.isa_max) == kIsaNames.end()) {
    check.Fault("isa_max", "auto, avx2, avx512, avx512_vnni, avx512_bf16, avx512_fp16 or amx",
                LogValue(options.isa_max));
  }
  const std::string precision = absl::GetFlag(FLAGS_precision);
  options.precision = PrecisionNamed(precision);
  if (!options.precision.has_value() && precision != kAutoPrecision) {
    check.Fault("precision", "fp32, bf16, int8 or auto", LogValue(precision));
  }
  const std::string format = absl::GetFlag(FLAGS_log_format);
  if (format == "json") {
    options.log_format = LogFormat::kJson;
  } else if (format != "text") {
    check.Fault("log_format", "text or json", LogValue(format));
  }
  CheckRanges(options, check);
  CheckTogether(options, check);
  return options;
}

std::string Describe(const Options& options) {
  const auto bool_name = [](bool value) { return value ? "true" : "false"; };
  return absl::StrCat(
      "model_dir=", LogValue(options.model_dir), " strict=", bool_name(options.strict),
      " allow_nonfinite_weights=", bool_name(options.allow_nonfinite_weights),
      " listen=", options.listen.ToString(), " metrics_listen=", options.metrics_listen.ToString(),
      " health_listen=",
      options.health_listen.has_value() ? options.health_listen->ToString() : LogValue(""),
      " plaintext=", bool_name(options.plaintext), " tls=", TlsName(options),
      " tls_cert_file=", LogValue(options.tls_cert_file),
      " tls_key_file=", LogValue(options.tls_key_file),
      " tls_client_ca_file=", LogValue(options.tls_client_ca_file),
      " allowed_clients=", options.allowed_clients.size(),
      " token_file=", LogValue(options.token_file),
      " handshake_timeout=", absl::FormatDuration(options.handshake_timeout),
      " max_connections=", options.max_connections,
      " max_connection_inflight=", options.max_connection_inflight,
      " max_connection_age=", absl::FormatDuration(options.max_connection_age),
      " max_connection_age_grace=", absl::FormatDuration(options.max_connection_age_grace),
      " min_ping_interval=", absl::FormatDuration(options.min_ping_interval),
      " max_sequence_tokens=", options.max_sequence_tokens,
      " max_request_sequences=", options.max_request_sequences,
      " max_request_tokens=", options.max_request_tokens,
      " max_response_bytes=", options.max_response_bytes,
      " max_inflight_bytes=", options.max_inflight_bytes,
      " default_deadline=", absl::FormatDuration(options.default_deadline),
      " max_queue_requests=", options.max_queue_requests,
      " max_queue_tokens=", options.max_queue_tokens,
      " max_queue_time=", absl::FormatDuration(options.max_queue_time),
      " predict_deadlines=", bool_name(options.predict_deadlines), " workers=", options.workers,
      " max_batch_tokens=", options.max_batch_tokens,
      " max_batch_wait=", absl::FormatDuration(options.max_batch_wait),
      " isa_max=", options.isa_max, " precision=", NameOf(options.precision),
      " precision_error_max=", options.precision_error_max,
      " precision_file=", LogValue(options.precision_file),
      " shadow_rate=", RateText(options.shadow_every),
      " drain_delay=", absl::FormatDuration(options.drain_delay),
      " drain_timeout=", absl::FormatDuration(options.drain_timeout),
      " log_format=", options.log_format == LogFormat::kJson ? "json" : "text",
      " termination_log=", LogValue(options.termination_log),
      " access_log=", LogValue(options.access_log),
      " access_log_rate=", RateText(options.access_log_every));
}

std::string HelpText() {
  return absl::StrCat(
      "encoderd serves one transformer encoder over gRPC.\n\n"
      "usage: encoderd --model_dir=FOLDER [--FLAG=VALUE]...\n\n",
      FlagHelp(Groups()),
      "\n"
      "Flags may also stand in files, one a line (--flagfile=FILE), or in environment variables\n"
      "FLAGS_name (--fromenv=name,name). Durations are written as 200ms, 5s or 1m30s.\n\n"
      "Exit codes: 0 done; 64 flags; 65 model; 69 address taken; 70 internal.\n");
}

bool VersionAsked() { return absl::GetFlag(FLAGS_version); }

}  // namespace encoderd
