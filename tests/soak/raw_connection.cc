#include "tests/soak/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>

#include "absl/log/check.h"

namespace encoderd::soak {
namespace {

// Frames of RFC 9113, section 4.1 and 6.
enum FrameType : char { kData = 0, kHeaders = 1, kSettings = 4 };
constexpr char kEndStream = 1, kEndHeaders = 4;

std::string BigEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

std::string Frame(FrameType type, char flags, uint32_t stream, const std::string& payload) {
  return BigEndian(static_cast<uint32_t>(payload.size()), 3) + static_cast<char>(type) + flags +
         BigEndian(stream, 4) + payload;
}

// A header field as in RFC 7541, section 6.2.2: literal, new name, not indexed. REQUIRES: both
// shorter than 127 bytes.
std::string Field(const std::string& name, const std::string& value) {
  std::string field(1, '\0');
  for (const std::string& text : {name, value}) {
    field.push_back(static_cast<char>(text.size()));
    field += text;
  }
  return field;
}

}  // namespace

RawConnection::RawConnection(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  CHECK_GE(socket_, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
      << "nobody listens on port " << port;
}

RawConnection::~RawConnection() { close(socket_); }

void RawConnection::Send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t now = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return;
    sent += static_cast<size_t>(now);
  }
}

std::string RawConnection::ReadToEnd() {
  std::string all;
  char buffer[1 << 16];
  for (ssize_t bytes; (bytes = read(socket_, buffer, sizeof(buffer))) > 0;) {
    all.append(buffer, static_cast<size_t>(bytes));
  }
  return all;
}

std::string EncodeOverHttp2(const v1::EncodeRequest& request) {
  const std::string message = request.SerializeAsString();
  // A gRPC message: not compressed, its length, its bytes.
  const std::string data =
      std::string(1, '\0') + BigEndian(static_cast<uint32_t>(message.size()), 4) + message;
  const std::string headers = Field(":method", "POST") + Field(":scheme", "http") +
                              Field(":path", "/encoderd.v1.EncoderService/Encode") +
                              Field(":authority", "localhost") + Field("te", "trailers") +
                              Field("content-type", "application/grpc");
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "") +
         Frame(kHeaders, kEndHeaders, 1, headers) + Frame(kData, kEndStream, 1, data);
}

}  // namespace encoderd::soak
