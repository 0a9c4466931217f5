// Swagger UI over the OpenAPI documents that the page names.
"use strict";

window.ui = SwaggerUIBundle({
  dom_id: "#documents",
  urls: JSON.parse(document.getElementById("openapi-documents").textContent),
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIStandalonePreset],
  layout: "StandaloneLayout",
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  filter: true,
  validatorUrl: null,
});
