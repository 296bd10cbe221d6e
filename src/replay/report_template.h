// The page of a report without its data: HTML with the placeholders @STYLE@, @SCRIPT@ and @DATA@.
#pragma once

namespace stemma::replay {

extern const char* const kReportTemplate;
extern const char* const kReportStyle;
extern const char* const kReportScript;

}  // namespace stemma::replay
