// Tells whoever supervises the process (systemd with Type=notify, and what speaks as it does) how it is.
#pragma once

#include <string_view>

namespace stemma::cli {

// Sends "READY=1", "STOPPING=1" or "STATUS=..." to the socket that $NOTIFY_SOCKET names, without waiting. Where there
// is none, or nobody reads from it, nothing happens. Lines are separated by '\n'.
void notify_supervisor(std::string_view state) noexcept;

}  // namespace stemma::cli
