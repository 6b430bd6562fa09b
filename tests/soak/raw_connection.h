// raw_connection.h — a TCP connection to a server of ours, for clients that behave as no library
// does.
#pragma once

#include <string>

#include "encoderd/v1/encoder.pb.h"

namespace encoderd::soak {

class RawConnection {
 public:
  // To this port of 127.0.0.1. The program ends where nobody listens.
  explicit RawConnection(int port);
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;
  ~RawConnection();  // closes, whatever was not read

  // Sends as much as the server takes before it closes.
  void Send(const std::string& bytes);
  std::string ReadToEnd();

 private:
  int socket_;
};

// All bytes of a client that makes one Encode call on a new HTTP/2 connection.
std::string EncodeOverHttp2(const v1::EncodeRequest& request);

}  // namespace encoderd::soak
