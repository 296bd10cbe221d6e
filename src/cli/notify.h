// Reports the state of the process to its supervisor (systemd with Type=notify, or a compatible
// one).
#pragma once

#include <string_view>

namespace stemma::cli {

// Sends "READY=1", "STOPPING=1" or "STATUS=..." to the socket that $NOTIFY_SOCKET names, without
// waiting. Does nothing if there is no socket, or nobody reads from it. Lines are separated by
// '\n'.
void notify_supervisor(std::string_view state) noexcept;

}  // namespace stemma::cli
