// Starts Swagger UI with what the page's script tag says; a file of its own, so that the page needs no inline script.
const told = document.currentScript.dataset;
window.addEventListener("load", () => {
  window.ui = SwaggerUIBundle({
    url: told.openapi,
    dom_id: "#docs",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    tryItOutEnabled: true,
    validatorUrl: null, // nothing leaves this machine
  });
});
